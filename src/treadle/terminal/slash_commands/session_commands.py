"""Slash commands for the conversation: new, resume, fork, rename, undo, compact, export."""

from datetime import datetime
from pathlib import Path

from treadle.core.items import text_message
from treadle.core.journal_entries import Entry, item_of_entry
from treadle.core.json import write_json
from treadle.terminal.conversation.chat_loop import ChatLoop
from treadle.terminal.conversation.host_interface import SessionInfo
from treadle.terminal.rendering.event_messages import plural

LISTED = 15
SUMMARISE = (
    "Summarise this conversation so that it can be gone on with from the summary alone: what is wanted, what was found"
    " and decided, which files and commands matter, what is left to do. Do not call tools."
)
CONTINUES = "This is a summary of the conversation so far:\n\n{summary}"


async def new(chat: ChatLoop, argument: str) -> None:
    """Start a new conversation."""
    chat.conversation.forget()
    chat.policy.allowances.forget()
    chat.screen.print_line("a new conversation")


async def clear(chat: ChatLoop, argument: str) -> None:
    """Start a new conversation on an empty screen."""
    chat.face.clear()
    await new(chat, argument)


async def sessions(chat: ChatLoop, argument: str) -> None:
    """List conversations; those of this folder are marked."""
    rows = await chat.conversation.host.list_sessions(LISTED, search=argument)
    here = chat.conversation.folder
    for row in rows:
        when = datetime.fromtimestamp(row.updated_at).astimezone().isoformat(" ", "minutes")[:16]
        mark = "*" if row.folder == here and here else " "
        chat.screen.print_line(f" {mark} {when}  {' '.join(row.name.split())}  {row.id}")
    if not rows:
        chat.screen.print_line("no session holds that" if argument else "no sessions yet")
    else:
        chat.screen.print_line("/resume NAME or ID goes on with one; * are of this folder", "dim")


async def resume(chat: ChatLoop, argument: str) -> None:
    """Continue a stored conversation; without a name with the last one of this folder."""
    conversation = chat.conversation
    entries = await (conversation.resume(argument) if argument else conversation.resume_last())
    chat.policy.allowances.forget()
    await chat.resumed(entries)


async def fork(chat: ChatLoop, argument: str) -> None:
    """Continue under another name."""
    session = await chat.conversation.fork()
    if argument:
        session = await chat.conversation.rename(argument)
    chat.screen.print_line(f"from now on in {session.name}; the first one stays as it is")


async def rename(chat: ChatLoop, argument: str) -> None:
    """Rename the conversation."""
    if not argument:
        session = chat.conversation.session
        chat.screen.print_line(f"this is {session.name}" if session else "it has no name yet; /rename NAME")
        return
    chat.screen.print_line(f"this is now {(await chat.conversation.rename(argument)).name}")


async def delete(chat: ChatLoop, argument: str) -> None:
    """Delete a conversation by name or id."""
    if not argument:
        chat.screen.print_line("which one? /delete NAME or ID")
        return
    host = chat.conversation.host
    row = await host.find_session(argument)
    await host.delete_session(row.id)
    if chat.conversation.session is not None and chat.conversation.session.id == row.id:
        chat.conversation.forget()
    chat.screen.print_line(f"{row.name} is forgotten, with all that was said in it")


async def undo(chat: ChatLoop, argument: str) -> None:
    """Take the last turn back, in a fork."""
    prompt = await chat.conversation.step_back()
    session = chat.conversation.session
    where = f"in {session.name}" if session else "in a new conversation"
    chat.screen.print_line(f"taken back, {where}; files that tools changed stay as they are (/diff shows them)")
    chat.face.offer(prompt)


async def compact(chat: ChatLoop, argument: str) -> None:
    """Let the model summarise the conversation, and start a new one with the summary."""
    if chat.conversation.session is None:
        chat.screen.print_line("nothing was said yet")
        return
    wish = f"{SUMMARISE} {argument}".strip()
    ended = await chat.follow(chat.conversation.send(text_message("user", wish)))
    if ended is None or ended.status != "completed" or not chat.screen.answer.strip():
        chat.screen.print_line("there is no summary; the conversation goes on as it was")
        return
    chat.conversation.begin_with(CONTINUES.format(summary=chat.screen.answer.strip()))
    chat.screen.print_line("a new conversation begins with this summary; /resume has the old one")


async def export(chat: ChatLoop, argument: str) -> None:
    """Write the conversation into a file, as Markdown or as JSON Lines by its ending."""
    session = chat.conversation.session
    if session is None or not argument:
        chat.screen.print_line("/export FILE.md or FILE.jsonl" if session else "nothing was said yet")
        return
    entries = await chat.conversation.host.session_entries(session.id)
    path = _path(chat.root, argument)
    text = _as_lines(entries) if path.suffix == ".jsonl" else _as_markdown(session, entries)
    try:
        _write_new(path, text)
    except OSError as error:
        chat.screen.print_line(f"✗ {path}: {error.strerror}", "error")
        return
    chat.screen.print_line(f"{plural(len(entries), 'item')} in {path}")


def _path(root: str, name: str) -> Path:
    return Path(root, name).expanduser()


def _write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet. Raises: OSError."""
    with path.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _as_lines(entries: list[Entry]) -> str:
    return "".join(f"{write_json(item_of_entry(entry)).decode()}\n" for entry in entries)


def _as_markdown(session: SessionInfo, entries: list[Entry]) -> str:
    from treadle.journal.journal_interface import SessionRow
    from treadle.journal.session_operations import write_markdown

    row = SessionRow(id=session.id, name=session.name, created_at=0.0, updated_at=session.updated_at)
    return write_markdown(row, entries)
