"""Plays random command lines as commands that nobody is asked about, and looks whether anything was changed.

`python -m sandbox.reading --seconds 60` is a part of `make fuzz`. Each line goes the way of a model's call: the policy
classes it, the arguments that it decides on are given to the shell tool, which runs it read-only. Besides, every line
runs with `read_only` as a model may ask for it. What is new, changed or gone in the folder, outside of it, in the home
or in a process is a failure; the line that did it is printed and can be played again.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from sandbox.bash_lines import NEW, Lines
from sandbox.stage import PYTHON, listening, shared_memory
from treadle.core.errors import ToolError
from treadle.core.events import ApprovalRequested
from treadle.core.items import CallItem
from treadle.core.json import read_json, write_json
from treadle.terminal.permissions.permission_policy import PermissionPolicy, question_of
from treadle.terminal.permissions.remembered_permissions import Allowances
from treadle.terminal.permissions.shell_command_analysis import parse
from treadle.tools import ToolContext
from treadle.tools.local.bash_tool import make_bash
from treadle.tools.local.output_read import OutputStore
from treadle.tools.local.safe_open import Root
from treadle.tools.result_rendering import write_text
from treadle.tools.sandbox import CommandSandbox, FoundLevel, SandboxRules, find_level

LEVELS: dict[str, tuple[int, int]] = {
    "L3": (3, 9),
    "L2": (2, 9),
    "L1": (1, 3),
    "L1 Landlock 2": (1, 2),
    "L1 Landlock 1": (1, 1),
}
"""Levels that a machine may have, with the version of Landlock that is used at most."""
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/")
TIMEOUT_S = 5.0
LINE_S = 0.5
BATCH = 12
_MARK = "=== line "
CONTEXT = ToolContext(run_id="run_1", session_id="sess_1")


def found_as(name: str) -> FoundLevel | None:
    """Return a level as this machine has it, or nothing."""
    level, abi = LEVELS[name]
    best = find_level()
    return FoundLevel(level=level, abi=min(abi, best.abi)) if level <= best.level else None


class Scene:
    """A folder to read in, what lies outside of it, and everything that shows a change. Its lines run one at a time."""

    def __init__(self, place: Path, found: FoundLevel) -> None:
        self.root, self.outside, self.home = place / "root", place / "outside", place / "home"
        self.place = place
        self.level = found.level
        path = f"/usr/local/bin:/usr/bin:/bin:{os.path.dirname(PYTHON)}"
        self._environ = {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"}
        self._names = {"OUT": str(self.outside), "PY": PYTHON}
        self._found = found
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Scene":
        _furnish(self.root, self.outside, self.home)
        self._victim = subprocess.Popen(["sleep", "100000"], cwd=self.outside)
        self._stack.callback(self._victim.wait)
        self._stack.callback(self._victim.kill)
        server = self._stack.enter_context(listening(("127.0.0.1", 0)))
        self._stack.enter_context(listening(f"{self.outside}/socket"))
        shm = self._stack.enter_context(shared_memory())
        self._names |= {"VICTIM": str(self._victim.pid), "TCP": str(server.getsockname()[1]), "SHM": str(shm)}
        rules = SandboxRules(env=tuple(self._names), read=(sys.base_prefix, str(self.outside)), network=True)
        self._sandbox = CommandSandbox(rules, found=self._found, environ={**self._environ, **self._names})
        self._stack.callback(self._sandbox.close)
        self._bash = make_bash(Root(self.root), self._sandbox, OutputStore())
        self._policy = PermissionPolicy("plan", Allowances(str(self.root)), sandbox=self.level)
        self._before = self._seen()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def victim(self) -> int:
        """Return a process outside that must not be touched."""
        return self._victim.pid

    def classed(self, line: str) -> dict[str, Any] | None:
        """Return the arguments with which a line runs unasked in plan mode; None when it does not."""
        arguments = write_json({"command": line, "timeout_s": TIMEOUT_S}).decode()
        call = CallItem(call_id="c", name="bash", arguments=arguments, side="server")
        why = ("bash always needs approval",)
        event = ApprovalRequested(index=0, call=call, approval_id="a", source="local", reasons=why)
        decision = self._policy.decide(question_of(event, str(self.root)))
        assert decision is not None
        return read_json(decision.arguments or arguments) if decision.approve else None

    async def play(self, line: str) -> str:
        """Run a line read-only and return what it changed; nothing, when all is as it was."""
        arguments = self.classed(line) or {"command": line, "timeout_s": TIMEOUT_S, "read_only": True}
        if not arguments.get("read_only"):
            return "it would have run unasked, and not read-only"
        with contextlib.suppress(ToolError):
            self.answer = read_json(write_text(await self._bash(CONTEXT, **arguments), "s3"))
        return self.changes()

    def changes(self) -> str:
        """Return what is not as it was when the scene began; it counts from now on."""
        before, now = self._before, self._seen()
        self._before = now
        names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        return "\n".join(f"{name}: {before.get(name)} → {now.get(name)}" for name in names)

    def _seen(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for top in (self.root, self.outside, self.home):
            for folder, folders, names in os.walk(top):
                for name in (".", *folders, *names):
                    path = os.path.normpath(os.path.join(folder, name))
                    found[path] = _look(path)
        for folder in SHARED_FOLDERS:
            made = [name for name in os.listdir(folder) if NEW in name]
            found.update({f"{folder}/{name}": "made" for name in made})
        found["the process outside"] = self._process()
        return found

    def _process(self) -> Any:
        pid = self._victim.pid
        if self._victim.poll() is not None:
            return "ended"
        stopped = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        limits = Path(f"/proc/{pid}/limits").read_text()
        score = Path(f"/proc/{pid}/oom_score_adj").read_text()
        return stopped[0] == "T", stopped[15:17], sorted(os.sched_getaffinity(pid)), limits, score


def _furnish(root: Path, outside: Path, home: Path) -> None:
    for folder in (root, outside, home):
        folder.mkdir()
    (outside / "secret").write_text("text outside\n")
    (outside / "script.sh").write_text("#!/bin/sh\ntouch made-outside\n")
    (home / ".bashrc").write_text("# rc\n")
    (root / "sub").mkdir()
    (root / "file").write_text("text\nb\na\n")
    (root / "7").write_text("text\n")
    (root / "a b").write_text("text\n")
    (root / "sub" / "inner").write_text("text\n")
    (root / "script.sh").write_text(f"#!/bin/sh\ntouch {NEW}\necho text\n")
    (root / "script.sh").chmod(0o755)
    (root / "link").symlink_to("file")
    (root / "out").symlink_to(outside)
    os.link(outside / "secret", root / "hard")
    with contextlib.suppress(OSError):
        os.setxattr(root / "file", "user.kept", b"1")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "file", "sub"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=root, check=True, env={"PATH": os.defpath, "HOME": str(home)})
    with open(root / "file", "a", encoding="ascii") as file:
        file.write("c\n")


def _look(path: str) -> tuple[Any, ...]:
    """Return all of a file that may change but the time it was read; no program can choose the time of its change."""
    about = os.lstat(path)
    kept = (stat.filemode(about.st_mode), about.st_uid, about.st_gid, about.st_size, about.st_ino, about.st_nlink)
    times = (about.st_mtime_ns, about.st_ctime_ns)
    content = ""
    if stat.S_ISREG(about.st_mode):
        content = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    names = os.listxattr(path, follow_symlinks=False)
    return kept, times, content, tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)


@dataclasses.dataclass
class Played:
    """How far a run of the fuzzer came."""

    lines: int = 0
    unasked: int = 0
    failures: list[str] = dataclasses.field(default_factory=list[str])


async def fuzz(scene: Scene, lines: Lines, *, seconds: float, played: Played, lines_max: int | None = None) -> Played:
    """Play lines for so long, or so many."""
    # Lines that remove whatever they reach are not let loose where nothing holds them.
    assert await scene.play('echo x > "$OUT/secret"; chmod 600 "$OUT/secret"') == ""
    assert scene.answer["read_only"] is True
    until = time.monotonic() + seconds
    while time.monotonic() < until and (lines_max is None or played.lines < lines_max):
        batch = [lines.next() for _ in range(BATCH)]
        played.lines += len(batch)
        for line in batch:
            arguments = scene.classed(line)
            played.unasked += arguments is not None
            if arguments is not None and arguments.get("read_only") is not True:
                played.failures.append(f"L{scene.level}: {line!r}\nit runs unasked, and not read-only")
        changed = await scene.play(batch[0]) or await scene.play(together(batch[1:]))
        if changed:
            guilty = [line for line in batch if await scene.play(line)] or batch
            played.failures.append(f"L{scene.level}: {guilty!r}\n{changed}")
    return played


async def unshown(scene: Scene, lines: list[str]) -> list[str]:
    """Return those of the lines of which bash runs a command that their explanation does not name; it is played too."""
    parsed = [(line, parse(line, root=str(scene.root))) for line in lines]
    explained = [(line, each) for line, each in parsed if each.is_explained and each.commands]
    traced = [
        f"BASH_XTRACEFD=7 timeout -k 0.2 {LINE_S} bash -xc {shlex.quote(line)} 7>$TMPDIR/trace >/dev/null 2>&1\n"
        f"echo '{_MARK}{number}'; cat $TMPDIR/trace"
        for number, (line, _) in enumerate(explained)
    ]
    found: list[str] = []
    for at in range(0, len(traced), BATCH):
        await scene.play("\n".join(traced[at : at + BATCH]))
        number = -1
        for row in scene.answer["output"].split("\n"):
            if row.startswith(_MARK):
                number = int(row.removeprefix(_MARK))
            elif row.startswith("+"):
                line, each = explained[number]
                ran = _first_word(row.lstrip("+"))
                if ran not in [_first_word(command.text) for command in each.commands]:
                    found.append(f"{line!r} ran {row}")
    return found


def _first_word(text: str) -> str:
    try:
        return (shlex.split(text) or [""])[0]
    except ValueError:
        return (text.split() or [""])[0]


def together(lines: list[str]) -> str:
    """Return a command that runs lines one after another, each in its own shell: the sandbox is most of the cost."""
    return "\n".join(f"timeout -k 0.2 {LINE_S} bash -c {shlex.quote(line)}" for line in lines)


@contextlib.contextmanager
def scene_at(name: str, place: Path) -> Generator[Scene | None]:
    """Give a scene at a level; nothing, where the machine does not have it."""
    found = found_as(name)
    if found is None:
        yield None
        return
    with Scene(place, found) as scene:
        yield scene


def main() -> int:
    """Fuzz every level that this machine has, in turns, and print what was found."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60.0, help="how long, over all levels")
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--turn", type=float, default=20.0, help="how long a level has its turn")
    given = options.parse_args()
    until, seed, total = time.monotonic() + given.seconds, given.seed, Played()
    while time.monotonic() < until:
        for name in LEVELS:
            left = until - time.monotonic()
            if left <= 0:
                break
            place = Path(tempfile.mkdtemp(prefix="treadle-reading-", dir="/var/tmp"))
            try:
                with scene_at(name, place) as scene:
                    if scene is not None:
                        turn = min(given.turn, left)
                        played = asyncio.run(fuzz(scene, Lines(seed), seconds=turn, played=Played()))
                        total.lines += played.lines
                        total.unasked += played.unasked
                        total.failures += [f"seed {seed}, {failure}" for failure in played.failures]
                        for failure in played.failures:
                            print(f"CHANGED: seed {seed}, {name}, {failure}", flush=True)
            finally:
                shutil.rmtree(place, ignore_errors=True)
            seed += 1
        print(f"{total.lines} lines, {total.unasked} of them unasked, {len(total.failures)} failures", flush=True)
    verdict = "FAILED" if total.failures else "CLEAN"
    levels = ", ".join(filter(found_as, LEVELS))
    print(f"{verdict}: {total.lines} lines, seeds {given.seed} to {seed - 1}, levels {levels}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
