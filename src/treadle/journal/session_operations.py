"""Operations on whole sessions, over any store: read their items, fork them, and write them as Markdown.

A session is a name for the head of a chain of runs. A fork is another name for the same chain, or for an earlier
place in it; both continue from there and neither sees what the other adds.
"""

import re
from collections.abc import Sequence

import msgspec

from treadle.core.errors import Conflict, NotFound, ProtocolError
from treadle.core.events import ENDED
from treadle.core.journal_entries import ITEM_KINDS, Entry
from treadle.journal.journal_interface import RunRow, SessionKind, SessionRow, Store

NAME_CHARS_MAX = 200
CHAIN_MAX = 100_000
PAGE = 200
FORKS_MAX = 1_000
"""How many forks of one name are named by counting."""

_TITLES = {"system": "System", "user": "User", "assistant": "Model", "reasoning": "Reasoning"}
_FENCES = re.compile(r"`{3,}")


class _Void(msgspec.Struct):
    items: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


def check_name(name: str) -> str:
    """Return a name that a session may have.

    Raises: ProtocolError.
    """
    if not name.strip() or len(name) > NAME_CHARS_MAX:
        raise ProtocolError(f"A session's name has 1 to {NAME_CHARS_MAX} characters.", param="name")
    return name


async def get_session(store: Store, id_or_name: str, *, key_id: str | None = "") -> SessionRow:
    """Return the session of that id or name.

    Raises: NotFound.
    """
    row = await store.find_session(id_or_name, key_id=key_id)
    if row is None or row.kind != "session":
        raise NotFound(f"There is no session {id_or_name!r}.", param="session")
    return row


async def chain_of(store: Store, head_run_id: str | None) -> list[RunRow]:
    """Return the runs that a session stands on, the newest first."""
    runs: list[RunRow] = []
    wanted = head_run_id
    while wanted is not None and len(runs) < CHAIN_MAX:
        row = await store.find_run(wanted)
        if row is None:
            break
        runs.append(row)
        wanted = row.previous_id
    return runs


async def read_items(store: Store, session: SessionRow) -> list[Entry]:
    """Return the items of a session's conversation, oldest first, as a model would read them."""
    if session.head_run_id is None:
        return []
    return drop_voided_items(await store.history(session.head_run_id))


def drop_voided_items(entries: Sequence[Entry]) -> list[Entry]:
    """Return the items among the entries, without those that a later entry voids."""
    voids = [msgspec.json.decode(entry.data, type=_Void) for entry in entries if entry.kind == "void" and entry.data]
    items = {item_id for void in voids for item_id in void.items}
    calls = {call_id for void in voids for call_id in void.calls}
    return [
        entry
        for entry in entries
        if entry.kind in ITEM_KINDS
        and (entry.is_input or not (entry.item_id in items or (entry.call_id is not None and entry.call_id in calls)))
    ]


async def fork_session(
    store: Store, source: SessionRow, row: SessionRow, *, at: str | None = None, name: str | None = None
) -> SessionRow:
    """Store `row` as a new session that stands where the source stands, or at an earlier run of its chain.

    Without a name it is called after the source.

    Raises: ProtocolError for a run that is not of the chain; Conflict when the run is running or the name is taken.
    """
    head = source.head_run_id
    if at is not None:
        found = next((run for run in await chain_of(store, head) if at in (run.id, run.response_id)), None)
        if found is None:
            raise ProtocolError(f"The run {at!r} is not one of the session {source.id!r}.", param="at")
        if found.status not in ENDED:
            raise Conflict(f"The run {at!r} is still going on.", param="at")
        head = found.id
    forked = msgspec.structs.replace(row, head_run_id=head, key_id=source.key_id, metadata=source.metadata)
    if name is not None:
        forked = msgspec.structs.replace(forked, name=check_name(name))
        await store.create_session(forked)
        return forked
    stem = source.name or source.id
    return await _create_counted(store, forked, stem, [" (fork)", *(f" (fork {n})" for n in range(2, FORKS_MAX + 1))])


async def create_numbered(store: Store, row: SessionRow) -> SessionRow:
    """Store a session under its name, or under the first free number after it.

    Raises: Conflict.
    """
    return await _create_counted(store, row, row.name, ["", *(f" ({n})" for n in range(2, FORKS_MAX + 1))])


async def _create_counted(store: Store, row: SessionRow, stem: str, suffixes: Sequence[str]) -> SessionRow:
    """Store the session under the first free name after another."""
    for suffix in suffixes:
        named = msgspec.structs.replace(row, name=f"{stem[: NAME_CHARS_MAX - len(suffix)]}{suffix}")
        if await store.find_session(named.name, key_id=row.key_id) is not None:
            continue
        try:
            await store.create_session(named)
        except Conflict:
            continue  # another process was quicker
        return named
    raise Conflict(f"There are {FORKS_MAX} sessions after {stem!r} already; name this one.", param="name")


async def forget_session(store: Store, session: SessionRow, *, with_runs: bool) -> None:
    """Forget a session, with `with_runs` its runs too, unless a fork still depends on those.

    Raises: Conflict, naming the fork, or while a run of the session is running.
    """
    if with_runs and (heir := await _heir_of(store, session)) is not None:
        raise Conflict(
            f"The session {heir.name or heir.id!r} goes on from what was said in this one.",
            code="session_forked",
            hint="forget that one first, or this one without its runs",
        )
    await store.delete_session(session.id, with_runs=with_runs)


async def _heir_of(store: Store, session: SessionRow) -> SessionRow | None:
    """Return a session that stands on runs which were made in another one."""
    head = None if session.head_run_id is None else await store.find_run(session.head_run_id)
    if head is None:
        return None
    kinds: tuple[SessionKind, ...] = ("session", "conversation")
    for kind in kinds:
        before: str | None = None
        while page := await store.list_sessions(PAGE, kind=kind, before=before):
            for other in page:
                if other.id != session.id and await _stands_on(store, other, session.id, head.conversation_id):
                    return other
            before = page[-1].id
    return None


async def _stands_on(store: Store, other: SessionRow, session_id: str, conversation_id: str) -> bool:
    """Return whether a session has runs of another in its chain; all of a chain are of one conversation."""
    row = None if other.head_run_id is None else await store.find_run(other.head_run_id)
    if row is None or row.conversation_id != conversation_id:
        return False
    return any(run.session_id == session_id for run in await chain_of(store, row.id))


def write_markdown(session: SessionRow, entries: Sequence[Entry]) -> str:
    """Write a conversation as Markdown."""
    blocks = [f"# {session.name or session.id}"]
    for entry in entries:
        text = entry.content or ""
        match entry.kind:
            case "tool_call":
                blocks.append(f"**Calls** `{_inline(text or entry.name or '')}`")
            case "tool_result":
                blocks.append(f"**Result** of `{_inline(entry.name or '')}`\n\n{_fenced(text)}")
            case kind if text and kind in _TITLES:
                blocks.append(f"## {_TITLES[kind]}\n\n{text}")
            case _:
                pass
    return "\n\n".join(blocks).encode("utf-8", "replace").decode() + "\n"


def _inline(text: str) -> str:
    return " ".join(text.replace("`", "'").split())


def _fenced(text: str) -> str:
    """Fence a text with more backticks than it has in a row."""
    longest = max((len(match[0]) for match in _FENCES.finditer(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
