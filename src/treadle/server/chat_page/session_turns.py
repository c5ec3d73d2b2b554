"""A session as turns, each a question and its answer, in the session's current branch.

Runs of a session form a tree, since a question can be asked anew from any place. A turn names its siblings, so that
a page can lead to the other branches.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.errors import NotFound
from treadle.core.events import ENDED, RunEnded, last_number
from treadle.core.items import FilePart, ImagePart, MessageItem, TextPart
from treadle.core.journal_entries import Entry, item_of_entry
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunRow, SessionRow, Store
from treadle.journal.session_operations import chain_of
from treadle.runs.replay.event_replay import replay_journal
from treadle.server.chat_page.questions import file_name_of
from treadle.server.chat_page.run_view import ChatRunView, Mode, Part, ending, note_of
from treadle.server.server_state import Service

RUNS_MAX = 1_000
"""How many of a session's newest runs are read to find branches."""

TURNS_MAX = 100


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that came with a question, by kind and name; never its content."""

    kind: str
    name: str


class TurnQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked."""

    text: str
    files: list[Attachment]


class SessionTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as a page shows it, after the first `n` events of its run."""

    run_id: str
    model: str
    status: str
    created_at: float
    question: TurnQuestion
    parts: list[Part]
    n: int
    siblings: list[str]
    previous_id: str | None = None
    ended_at: float | None = None
    note: str = ""
    advice: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None


class TurnPage(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a session's branch, oldest first; `before` the first one's run gives the turns before it."""

    turns: list[SessionTurn]
    has_more: bool


async def read_turns(service: Service, session: SessionRow, *, mode: Mode, before: str | None, limit: int) -> TurnPage:
    """Return the newest turns of a session's current branch, or those before a run of it.

    Raises: NotFound.
    """
    store = service.runtime.store
    runs = await store.list_runs(session_id=session.id, limit=RUNS_MAX)
    chain = list(reversed(await chain_of(store, _leaf(session, runs))))
    if before is not None:
        place = next((number for number, run in enumerate(chain) if run.id == before), None)
        if place is None:
            raise NotFound(f"The run {before!r} is not one of this branch.", param="before")
        chain = chain[:place]
    siblings = _siblings([*runs, *chain])
    turns = [await _read_turn(service, run, siblings[run.previous_id], mode) for run in chain[-limit:]]
    return TurnPage(turns=turns, has_more=len(chain) > limit)


async def read_turn(service: Service, run: RunRow, mode: Mode) -> SessionTurn:
    """Return one run as a turn."""
    runs = [] if run.session_id is None else await _runs_of(service.runtime.store, run.session_id)
    return await _read_turn(service, run, _siblings([*runs, run])[run.previous_id], mode)


async def leaf_below(store: Store, session: SessionRow, run_id: str) -> str:
    """Return the newest leaf below a run of the session, where its branch is continued.

    Raises: NotFound.
    """
    runs = await _runs_of(store, session.id)
    if all(run.id != run_id for run in runs):
        raise NotFound(f"The run {run_id!r} is not one of this session.", param="run")
    leaf = run_id
    while children := [run for run in runs if run.previous_id == leaf]:
        leaf = max(children, key=lambda run: run.created_at).id
    return leaf


async def newest_of(store: Store, session: SessionRow) -> RunRow | None:
    """Return the newest run of a session."""
    return next(iter(await store.list_runs(session_id=session.id, limit=1)), None)


async def _runs_of(store: Store, session_id: str) -> list[RunRow]:
    return await store.list_runs(session_id=session_id, limit=RUNS_MAX)


def _leaf(session: SessionRow, runs: Sequence[RunRow]) -> str | None:
    """Return the last run to show: the session's head, or an active or failed run that continues it."""
    if not runs:
        return session.head_run_id
    newest = runs[0]
    is_left = newest.status in ENDED and (newest.ended_at or 0.0) < session.updated_at
    return newest.id if newest.previous_id == session.head_run_id and not is_left else session.head_run_id


def _siblings(runs: Sequence[RunRow]) -> dict[str | None, list[str]]:
    """Return the runs that continue the same run, oldest first."""
    found: dict[str | None, dict[str, float]] = {}
    for run in runs:
        found.setdefault(run.previous_id, {})[run.id] = run.created_at
    return {place: sorted(times, key=times.__getitem__) for place, times in found.items()}


async def _read_turn(service: Service, run: RunRow, siblings: list[str], mode: Mode) -> SessionTurn:
    entries = await service.runtime.store.entries(run.id)
    screen, events = ChatRunView(mode), replay_journal(entries)
    usage = run.usage
    fields: dict[str, Any] = {"status": run.status, "ended_at": run.ended_at, **note_of(run.status, run.stop, run)}
    for numbered in events:
        screen.feed(numbered.event)
        if isinstance(numbered.event, RunEnded):
            # The row may have been read before the run ended, and its entries after.
            fields, usage = ending(numbered.event), numbered.event.usage or usage
    return SessionTurn(
        run_id=run.id,
        model=run.model,
        previous_id=run.previous_id,
        created_at=run.created_at,
        question=question_of(entries),
        parts=screen.parts,
        n=last_number(events),
        siblings=siblings,
        usage=usage,
        cost_usd=service.runtime.prices.cost(run.model, usage),
        **fields,
    )


def question_of(entries: Sequence[Entry]) -> TurnQuestion:
    """Return the question of a run, without the history before it."""
    texts: list[str] = []
    files: list[Attachment] = []
    for entry in entries:
        if not entry.is_input or entry.kind != "user":
            continue
        item = item_of_entry(entry)
        for part in item.content if isinstance(item, MessageItem) else ():
            match part:
                case TextPart():
                    name = file_name_of(part.text)
                    if name is None:
                        texts.append(part.text)
                    else:
                        files.append(Attachment(kind="text", name=name))
                case ImagePart():
                    files.append(Attachment(kind="image", name="picture"))
                case FilePart():
                    files.append(Attachment(kind="file", name=part.filename or "file"))
                case _:
                    files.append(Attachment(kind="other", name="attachment"))
    return TurnQuestion(text="\n".join(texts), files=files)
