"""Commands that the person runs: shown, kept, ended."""

import asyncio
from pathlib import Path

from treadle.cli.talk.shell import Shell


async def test_lines_are_told_as_they_come_and_kept(tmp_path: Path) -> None:
    """Output and errors in one order, in the folder; the exit code is returned."""
    shell, lines = Shell(str(tmp_path)), list[str]()
    assert await shell.run("pwd; echo bad >&2; printf open; exit 3", lines.append) == 3
    assert lines[0].endswith(tmp_path.name)
    assert lines[1:] == ["bad", "open"]
    assert (shell.command, shell.kept) == ("pwd; echo bad >&2; printf open; exit 3", "\n".join([*lines, ""]))
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
    assert len(shell.kept) < 200_000
