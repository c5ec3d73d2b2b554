"""Commands that the person runs: shown, kept, ended."""

import asyncio
import os
from pathlib import Path

from treadle.terminal.conversation.user_shell import Shell


def is_alive(pid: int) -> bool:
    """Tell whether a process still runs; one that nobody has waited for yet does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_lines_are_told_as_they_come_and_kept(tmp_path: Path) -> None:
    """Output and errors in one order, in the folder; the exit code is returned."""
    shell, lines = Shell(str(tmp_path)), list[str]()
    assert await shell.run("pwd; echo bad >&2; printf open; exit 3", lines.append) == 3
    assert lines[0].endswith(tmp_path.name)
    assert lines[1:] == ["bad", "open"]
    assert (shell.command, shell.output) == ("pwd; echo bad >&2; printf open; exit 3", "\n".join([*lines, ""]))
    assert not shell.is_running


async def test_a_command_is_ended_with_what_it_started(tmp_path: Path) -> None:
    """Stopping does not wait for children."""
    shell, begun = Shell(str(tmp_path)), asyncio.Event()
    running = asyncio.create_task(shell.run("echo on; sleep 60 & sleep 60", lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 10)
    assert shell.is_running
    shell.stop()
    assert await asyncio.wait_for(running, 10) == -15


async def test_a_line_without_end_is_bounded(tmp_path: Path) -> None:
    """Memory is not the limit."""
    shell, lines = Shell(str(tmp_path)), list[str]()
    await shell.run("head -c 300000 /dev/zero | tr '\\0' x; echo; echo after", lines.append)
    assert lines[-1].endswith("after")
    assert len(shell.output) < 200_000


async def test_a_command_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    """The shell has ended, so the prompt comes back, with all that was written; what is left is ended."""
    shell, lines = Shell(str(tmp_path)), list[str]()
    assert await asyncio.wait_for(shell.run("sleep 60 & echo $!", lines.append), 20) == 0
    for _ in range(1000):
        if not is_alive(int(lines[0])):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is still there")


async def test_a_command_that_does_not_listen_is_killed_when_asked_twice(tmp_path: Path) -> None:
    """The first Ctrl-C asks; what the shell itself says of its children may stand between."""
    shell, heard = Shell(str(tmp_path)), {"on": asyncio.Event(), "no": asyncio.Event()}

    def told(line: str) -> None:
        if line in heard:
            heard[line].set()

    running = asyncio.create_task(shell.run("trap 'echo no' TERM; echo on; while :; do sleep 0.05; done", told))
    await asyncio.wait_for(heard["on"].wait(), 10)
    shell.stop()
    await asyncio.wait_for(heard["no"].wait(), 10)
    assert shell.is_running
    shell.stop()
    assert await asyncio.wait_for(running, 10) == -9
