"""Hostile commands at every level that this machine has. What a level is known not to stop is expected to succeed."""

import asyncio
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.actions import ACTIONS, Action
from sandbox.stage import LEVELS, MARKER, Stage, found_at, gone, make_sandbox, survivors
from treadle.tools.sandbox import CommandSandbox, find_level

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="the sandbox is for Linux")


@pytest.fixture(scope="module", params=LEVELS, ids=lambda level: f"L{level}")
def sandbox(request: pytest.FixtureRequest) -> Iterator[CommandSandbox]:
    """A sandbox of each level; one that the machine lacks is skipped and named."""
    found = found_at(request.param)
    if found is None:
        pytest.skip(f"L{request.param} is not to be had here: {find_level().missing.get(f'L{request.param}')}")
    box = make_sandbox(found)
    yield box
    box.close()


@pytest.fixture
def stage(tmp_path: Path, sandbox: CommandSandbox) -> Iterator[Stage]:
    """A root, and around it everything that must stay out of reach."""
    with Stage(tmp_path, sandbox) as made:
        yield made


def is_stopped(action: Action, level: int, abi: int) -> bool:
    """Tell whether a level promises to stop an action."""
    return level >= action.holds_from and (abi >= action.abi or level > 2 or action.holds_from == 0)


@pytest.mark.parametrize("name", ACTIONS)
async def test_a_hostile_action_gets_as_far_as_its_level_says_and_no_further(stage: Stage, name: str) -> None:
    """From its level on an action is stopped; below, where it is known to work, it works."""
    action, found = ACTIONS[name], stage.sandbox.found
    if platform.machine() != "x86_64" and "call(" in action.script:
        pytest.skip("the numbers of system calls in the script are those of x86-64")
    if action.risky and found.level == 0:
        pytest.skip("not to be tried unconfined")
    written, ended = await stage.play(action.script)
    assert ended.ending == "exited", written
    if is_stopped(action, found.level, found.abi):
        assert "ESCAPED" not in written
        assert (stage.outside / "secret").read_text() == "the-secret-outside"
    elif found.level in action.opens and (os.getuid() == 0 or not action.is_root):
        assert "ESCAPED" in written


READ_ALL_THE_SAME = {"read_a_command_line": 3}
"""What is only reading, and the level from which it is kept from a command."""


@pytest.mark.parametrize("name", ACTIONS)
async def test_a_hostile_action_that_runs_read_only_gets_nowhere_at_any_level(stage: Stage, name: str) -> None:
    """Also where Landlock alone would let it: modes, times, signals, shared memory."""
    level = stage.sandbox.found.level
    if level < 1 or level < READ_ALL_THE_SAME.get(name, 0):
        pytest.skip("nothing is promised here")
    if platform.machine() != "x86_64" and "call(" in ACTIONS[name].script:
        pytest.skip("the numbers of system calls in the script are those of x86-64")
    assert "ESCAPED" not in await stage.play_reading(ACTIONS[name].script)
    assert (stage.outside / "secret").read_text() == "the-secret-outside"


def test_the_table_is_as_large_as_was_asked_for() -> None:
    """At least thirty actions, and the best level leaves none of them open."""
    assert len(ACTIONS) >= 30
    assert [name for name, action in ACTIONS.items() if action.holds_from > 3] == []


def test_the_best_level_was_tried() -> None:
    """What the probe found is one of the levels above, and every better one has a reason."""
    found = find_level()
    assert found.level in LEVELS
    assert sorted(found.missing) == [f"L{level}" for level in LEVELS if level > found.level]
    print(f"tried: L0 to {found.name}; lacking: {found.missing or 'none'}")


LINGERING = {
    "a child in a session of its own": "setsid sleep 300 $MARKER & echo started",
    "a child that ignores hangups": "nohup sleep 300 $MARKER >/dev/null 2>&1 & disown; echo started",
    "a daemon": """exec "$PY" -I -S - $MARKER <<'CODE'
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        os.execvp("sleep", ["sleep", "300", "MARKER".replace("MARKER", os.environ["MARKER"])])
    os._exit(0)
time.sleep(0.1)
print("started", flush=True)
CODE
""",
    "a loop that starts itself again": "(while :; do setsid sleep 1 $MARKER & sleep 0.01; done) & echo started",
}


@pytest.mark.parametrize("how", LINGERING)
async def test_nothing_outlives_its_command(stage: Stage, how: str) -> None:
    """However a process detaches itself, it ends with the command, and the command's end is not waited for."""
    stage.env["MARKER"] = marker = f"{MARKER}-{os.getpid()}-{id(stage)}"
    script = LINGERING[how].replace("sleep 300 $MARKER", "bash -c 'sleep 300' $MARKER")
    script = script.replace("sleep 1 $MARKER", "bash -c 'sleep 1' $MARKER")
    script = script.replace('["sleep", "300", ', '["bash", "-c", "sleep 300", ').replace(
        'execvp("sleep"', 'execvp("bash"'
    )
    written, ended = await stage.play(script)
    assert "started" in written
    assert ended.ending == "exited"
    assert await gone(marker), survivors(marker)


async def test_a_command_that_ignores_being_asked_is_killed(stage: Stage) -> None:
    """At its time limit, with every child."""
    stage.env["MARKER"] = marker = f"{MARKER}-{os.getpid()}-{id(stage)}"
    script = "trap '' TERM; bash -c \"trap '' TERM; while :; do sleep 1; done\" $MARKER & while :; do sleep 1; done"
    _, ended = await stage.play(script, timeout_s=0.5, term_s=0.2)
    assert (ended.ending, ended.code) == ("timeout", 124)
    assert await gone(marker), survivors(marker)


async def test_a_cancelled_command_is_gone(stage: Stage) -> None:
    """Whoever stops waiting leaves nothing running."""
    stage.env["MARKER"] = marker = f"{MARKER}-{os.getpid()}-{id(stage)}"
    task = asyncio.create_task(stage.play("setsid bash -c 'sleep 300' $MARKER & touch begun; sleep 300"))
    for _ in range(500):
        if (stage.root / "begun").exists():
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(marker), survivors(marker)


@pytest.mark.parametrize("detach", ["", "setsid "], ids=["in one group", "each in a session of its own"])
async def test_a_fork_bomb_is_ended(stage: Stage, detach: str) -> None:
    """Too many processes end the command, all of them. The bomb has an end of its own, for the sake of the machine."""
    stage.env["MARKER"] = marker = f"{MARKER}-{os.getpid()}-{id(stage)}"
    script = f"for i in $(seq 200); do {detach}bash -c 'sleep 20; :' $MARKER & done; sleep 20"
    _, ended = await stage.play(script, timeout_s=30.0, processes_max=48)
    # As a plain user the kernel itself refuses to fork, and the bomb may starve instead of growing.
    assert ended.ending in (("processes",) if os.getuid() == 0 else ("processes", "exited"))
    assert await gone(marker), len(survivors(marker))
    written, again = await stage.play("echo alive")
    assert (written, again.code) == ("alive\n", 0)


async def test_a_command_that_kills_its_supervisor_is_ended_all_the_same(stage: Stage) -> None:
    """Where it can reach the supervisor at all, what it leaves behind falls to the helper."""
    stage.env["MARKER"] = marker = f"{MARKER}-{os.getpid()}-{id(stage)}"
    await stage.play(
        "setsid bash -c 'sleep 300' $MARKER & sleep 0.1; kill -9 $PPID; sleep 300", timeout_s=3.0, term_s=0.1
    )
    assert await gone(marker), survivors(marker)
    written, _ = await stage.play("echo alive")
    assert written == "alive\n"


async def test_memory_and_files_have_a_bound(stage: Stage) -> None:
    """Too much memory ends the command; a file stops growing at its limit."""
    hog = "exec \"$PY\" -I -S -c 'import time; x = bytearray(200_000_000); time.sleep(30)'"
    _, ended = await stage.play(hog, memory_bytes_max=100_000_000)
    assert ended.ending == "memory"
    await stage.play("head -c 3000000 /dev/zero > big", file_bytes_max=1_000_000)
    assert (stage.root / "big").stat().st_size == 1_000_000


async def test_ordinary_work_works(stage: Stage) -> None:
    """A sandbox that breaks tools gets turned off: what people do every day must run."""
    script = """set -e
git -c init.defaultBranch=main init -q repo && cd repo
git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m first && git log --oneline | grep -q first
"$PY" -I -c 'import json, tempfile, subprocess; tempfile.TemporaryFile(); print(subprocess.check_output(["true"]))'
echo text > "$TMPDIR/file" && cp "$TMPDIR/file" copy && mv copy moved && mkdir -p a/b && mv moved a/b/ && rm -r a
cat <(echo substitution) | sort | uniq -c >/dev/null 2>/dev/stderr
printf '#!/bin/sh\\necho ran\\n' > run.sh && chmod +x run.sh && ./run.sh
touch "$HOME/.rc" && ls -la / /usr /etc >/dev/null 2>&1 || true
echo finished
"""
    written, ended = await stage.play(script)
    assert (ended.code, written.splitlines()[-2:]) == (0, ["ran", "finished"]), written
