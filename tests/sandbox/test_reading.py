"""A command that nobody is asked about can change nothing, whatever it is; and what changes is noticed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.bash_lines import BYPASSES, NEW, Lines
from sandbox.reading import BATCH, LEVELS, Played, Scene, fuzz, scene_at, together, unshown
from treadle.terminal.permissions.shell_command_analysis import parse
from treadle.tools.sandbox import find_level

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="the sandbox is for Linux")

SEED = 28
SECONDS = 2.0
EXHAUSTIVE_SECONDS = 12.0
"""At each level: a minute for all of them."""


@pytest.fixture(params=LEVELS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A scene at each level; one that the machine lacks is skipped and named."""
    with scene_at(request.param, tmp_path) as made:
        if made is None:
            pytest.skip(f"{request.param} is not to be had here: {find_level().missing}")
        yield made


async def test_every_bypass_that_was_found_changes_nothing(scene: Scene) -> None:
    """Each of them once ran unasked and wrote, or is of its kind. Now it runs unasked at most read-only."""
    for line in BYPASSES:
        arguments = scene.classed(line)
        assert arguments is None or arguments["read_only"] is True, line
    for at in range(0, len(BYPASSES), BATCH):
        batch = list(BYPASSES[at : at + BATCH])
        assert await scene.play(together(batch)) == "", batch
    assert scene.answer["read_only"] is True


async def test_random_lines_change_nothing(scene: Scene) -> None:
    """A grammar of bash, its mutations and random system calls."""
    played = await fuzz(scene, Lines(SEED), seconds=SECONDS, played=Played())
    assert played.failures == []
    assert played.lines > 0


@pytest.mark.exhaustive
async def test_many_random_lines_change_nothing(scene: Scene) -> None:
    """Others each time: a failure names its line, which is all that is needed to play it again."""
    seed = int.from_bytes(os.urandom(4))
    played = await fuzz(scene, Lines(seed), seconds=EXHAUSTIVE_SECONDS, played=Played())
    assert played.failures == [], f"seed {seed}"


LINES_EXPLAINED = 400


async def test_what_a_person_is_shown_of_a_line_is_all_that_bash_runs(tmp_path: Path) -> None:
    """Of random lines, those that are shown in parts run no other program than the parts name."""
    with scene_at("L1", tmp_path) as scene:
        if scene is None:
            pytest.skip("there is no sandbox here")
        lines = Lines(SEED)
        tried = [*BYPASSES, *(lines.next() for _ in range(LINES_EXPLAINED))]
        assert await unshown(scene, tried) == []
        # The look itself works: a trap is not named as what it runs, which is why it is never explained.
        assert parse("ls; pwd").is_explained
        assert not parse("trap 'touch x' EXIT; ls").is_explained


CHANGES = {
    "a new file": f"touch {NEW}",
    "a file emptied": "> file",
    "a mode": "chmod 600 file",
    "a time": "touch -d @1 file",
    "an attribute": "python3 -c \"import os; os.setxattr('file', 'user.x', b'1')\"",
    "an attribute gone": "python3 -c \"import os; os.removexattr('file', 'user.kept')\"",
    "the same content again": 'text=$(< file); printf "%s\\n" "$text" > file',
    "a file of git": "echo x >> .git/config",
    "a file gone": "rm sub/inner",
    "a file outside": "chmod 600 ../outside/secret",
    "a file of the home": "echo x >> ../home/.bashrc",
    "a link elsewhere": "ln -sfn sub link",
    "another name for a file": "ln file sub/other",
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_command_may_do_when_nothing_holds_it_is_noticed(tmp_path: Path, what: str) -> None:
    """A look that finds nothing would prove nothing."""
    with scene_at("L1", tmp_path) as scene:
        if scene is None:
            pytest.skip("there is no sandbox here")
        assert scene.changes() == ""
        subprocess.run(["bash", "-c", CHANGES[what]], cwd=scene.root, check=False)
        assert scene.changes() != ""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_what_becomes_of_a_process_outside_is_noticed(tmp_path: Path, number: int) -> None:
    """Stopped, or ended."""
    with scene_at("L1", tmp_path) as scene:
        if scene is None:
            pytest.skip("there is no sandbox here")
        os.kill(scene.victim, number)
        os.waitid(os.P_PID, scene.victim, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert "the process outside" in scene.changes()


def test_lines_are_the_same_for_the_same_seed() -> None:
    """And others for another."""
    first, again, other = Lines(1), Lines(1), Lines(2)
    lines = [first.next() for _ in range(50)]
    assert lines == [again.next() for _ in range(50)]
    assert lines != [other.next() for _ in range(50)]
