"""Slash commands for the work: changes in the folder, running runs, leaving."""

from treadle.core.events import ENDED
from treadle.terminal.conversation.chat_loop import ChatLoop
from treadle.terminal.rendering.approval_card import styled_diff
from treadle.tools.git_command import run_git

DIFF_LINES_MAX = 400
RUNS_LOOKED_AT = 50


async def diff(chat: ChatLoop, argument: str) -> None:
    """Show what changed in the folder since the last commit, according to git."""
    code, out = await run_git(chat.root, "diff", "HEAD", *argument.split())
    if code != 0:
        chat.screen.print_line(out.strip().split("\n")[0] or "git can not tell")
        return
    _, names = await run_git(chat.root, "ls-files", "--others", "--exclude-standard")
    lines = out.splitlines()
    chat.screen.lines(styled_diff(lines[:DIFF_LINES_MAX]))
    if len(lines) > DIFF_LINES_MAX:
        chat.screen.print_line(f"… {len(lines) - DIFF_LINES_MAX} more lines: !git diff", "dim")
    for name in names.splitlines()[:50]:
        chat.screen.print_line(f"    new: {name}", "added")
    if not lines and not names.strip():
        chat.screen.print_line("nothing has changed")


async def ps(chat: ChatLoop, argument: str) -> None:
    """List the runs that are going on."""
    runs = [run for run in await chat.conversation.host.list_runs(RUNS_LOOKED_AT) if run.status not in ENDED]
    for run in runs:
        mark = "*" if run.id == chat.conversation.run_id else " "
        chat.screen.print_line(f" {mark} {run.id}  {run.status}  {run.model}")
    chat.screen.print_line("/kill RUN ends one; * is of this terminal" if runs else "nothing is going on", "dim")


async def kill(chat: ChatLoop, argument: str) -> None:
    """End a run."""
    if not argument:
        chat.screen.print_line("which one? /ps lists them")
        return
    run = await chat.conversation.host.find_run(argument)
    if run.status in ENDED:
        chat.screen.print_line(f"{argument} has ended: {run.status}")
        return
    await chat.conversation.host.cancel(argument)
    chat.screen.print_line(f"{argument} was asked to end")


async def quit_(chat: ChatLoop, argument: str) -> None:
    """Leave the chat."""
    chat.is_over = True
