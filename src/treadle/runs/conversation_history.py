"""Builds the conversation that a run continues, from earlier runs in the store and the client's items.

For every provider alike: references become the items they name, a mixed turn (server and client calls in one reply, of
which the client knows only a part) is completed in call order, and a call without a result is closed.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.core.events import ENDED
from treadle.core.ids import (
    APPROVAL,
    CALL_ITEM,
    ITEM,
    MESSAGE,
    REASONING,
    RESULT,
    shown_call_id,
    stored_call_id,
)
from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    text_of,
    text_result,
)
from treadle.core.journal_entries import ITEM_KINDS, Entry, entry_of_item, item_of_entry
from treadle.core.json import BadJson, canonical_json, read_json
from treadle.core.request import Note, Request
from treadle.engine.approval_reasons import RequestRecord
from treadle.journal.journal_interface import RunRow, Store
from treadle.protocols.translation_notes import HISTORY
from treadle.runs.approvals.pending_turn import WaitingCall
from treadle.runs.history_validation import check_results, note_repairs
from treadle.runs.replay.event_replay import UNREADABLE, DamagedJournal

_PREFIX: dict[type, str] = {MessageItem: MESSAGE, ReasoningItem: REASONING, CallItem: CALL_ITEM, ResultItem: RESULT}
_AMONG_CALLS = frozenset({CallItem, OpaqueItem, ReasoningItem})
"""Items that may appear among the calls of a turn, before their results."""
INTERRUPTED = '{"error":{"code":"interrupted","message":"Interrupted, outcome unknown."}}'


class _Void(msgspec.Struct, frozen=True):
    """The data of a `void` entry: the earlier items and calls that are removed from the conversation."""

    items: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()


class JoinedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation up to the model's turn: `before` is stored already, `added` is this run's input.

    `rejoined` are runs that were stored for this one alone, `waiting` are calls of an earlier run that wait for a
    decision, `repeated` the approval requests that the client sent back with its input. `is_messages_only` is true for
    a conversation without calls or other items.
    """

    before: tuple[AnyItem, ...]
    added: tuple[AnyItem, ...]
    previous: RunRow | None = None
    rejoined: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    waiting: tuple[WaitingCall, ...] = ()
    repeated: frozenset[str] = frozenset()
    is_messages_only: bool = False


class _Remembered(msgspec.Struct):
    """The part of a run's frame that names the runs stored for it alone."""

    rejoined: tuple[str, ...] = ()


class ConversationHistory:
    """Joins requests with the conversations in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def join(self, request: Request, *, key_id: str, previous_run_id: str | None = None) -> JoinedHistory:
        """Return the whole conversation of a request.

        Raises: NotFound for an id that the caller has not stored, ProtocolError for a result without its call.
        """
        kinds = {*map(type, request.items)}
        if previous_run_id is None and request.previous_response_id is None and kinds <= {MessageItem}:
            # Without calls, references or an earlier run the store has nothing to add.
            return JoinedHistory(before=(), added=request.items, is_messages_only=True)
        previous = await self._previous(request, key_id, previous_run_id)
        before = await self._stored_items(previous)
        added = [*request.items] if ReferenceItem not in kinds else await self._resolved(request.items, key_id)
        known = {item.call_id for item in before if type(item) is CallItem}
        resent = await self._find_resent(added, known, key_id)
        if resent.known:
            added = [item for item in added if not resent.is_known(item)]
        turns, unstored_runs = await self._mixed_turns(added, known, key_id)
        added = rejoin(added, {**turns, **resent.turns})
        repairs: tuple[Note, ...] = ()
        if ResultItem in kinds or CallItem in kinds:
            check_results(request, added, known)
            repairs = note_repairs(added)
        waiting = _waiting([*before, *added], resent.requests | await self._requests(previous))
        closed = close_orphans([*before, *added], {each.call.call_id for each in waiting})
        stored_for_this = () if previous is None or previous.store else (previous.id,)
        return JoinedHistory(
            before=tuple(before),
            added=tuple(_new_items(closed, before)),
            previous=previous,
            rejoined=await self._with_earlier((*unstored_runs, *resent.unstored_runs, *stored_for_this)),
            notes=(*repairs, *_notes(len(closed) - len(before) - len(added))),
            waiting=waiting,
            repeated=frozenset([item.call_id for item in request.items if _is_approval_call(item)]),
        )

    async def _with_earlier(self, run_ids: Sequence[str]) -> tuple[str, ...]:
        """Add the runs that were stored for these runs: several open turns may follow each other.

        Each frame names all of its own, so one level is enough.
        """
        found = dict.fromkeys(run_ids)
        for run_id in run_ids:
            for entry in await self._store.entries(run_id, for_next=True):
                if entry.kind == "frame" and entry.data is not None:
                    found |= dict.fromkeys(msgspec.json.decode(entry.data, type=_Remembered).rejoined)
                    break
        return tuple(found)

    async def _requests(self, previous: RunRow | None) -> dict[str, RequestRecord]:
        """Return the approval requests that the previous run left open, by call."""
        if previous is None or previous.status != "requires_action":
            return {}
        return _requests_of(await self._store.entries(previous.id, for_next=True))

    async def _find_resent(self, items: Sequence[AnyItem], known: set[str], key_id: str) -> "_ResentRequests":
        """Find the turns of the approval requests among the items, by which a client may send a stored call back."""
        asked = _ResentRequests()
        for item in [item for item in items if type(item) is CallItem]:
            if not is_approval_call(item) or item.call_id in asked.turns:
                continue
            row = await self._store.approvals.find(item.call_id, key_id=key_id)
            if row is None:
                continue
            if row.call_id in known:
                asked.known.add(item.call_id)
                continue
            run = await self._store.find_run(row.run_id)
            entries = await self._store.entries(row.run_id, for_next=True)
            turn = _last_turn(entries)
            if run is None or not turn:
                continue
            if not run.store:
                asked.unstored_runs.append(run.id)
            asked.requests.update(_requests_of(entries))
            names = {item.call_id, *(each for piece in turn for each in _ids(piece))}
            asked.turns.update(dict.fromkeys((*names, *_approval_ids(entries)), turn))
        return asked

    async def _previous(self, request: Request, key_id: str, run_id: str | None) -> RunRow | None:
        wanted = request.previous_response_id or run_id
        if wanted is None:
            return None
        row = await self._store.find_run(wanted, key_id=key_id)
        if row is None or not (row.store or await self._has_hidden_items(row)):
            raise NotFound(
                f"Previous response with id {wanted!r} not found.",
                code="previous_response_not_found",
                param="previous_response_id",
                hint="It was never stored, was deleted, or belongs to another key.",
            )
        if row.status not in ENDED:
            raise Conflict(f"The response {wanted!r} is still going on.", param="previous_response_id")
        return row

    async def _has_hidden_items(self, row: RunRow) -> bool:
        """Return whether a run that is not stored still has content for the run that answers its open calls."""
        is_open = row.status == "requires_action"
        return is_open and bool(await self._store.entries(row.id, limit=1, for_next=True))

    async def _stored_items(self, previous: RunRow | None) -> list[AnyItem]:
        return [] if previous is None else await read_history(self._store, previous.id, for_next=True)

    async def _resolved(self, items: Sequence[AnyItem], key_id: str) -> list[AnyItem]:
        """Return the items with references resolved; a referenced server call includes its result."""
        found: list[AnyItem] = []
        for item in items:
            if type(item) is not ReferenceItem:
                found.append(item)
                continue
            entries = await self._store.find_item(stored_call_id(item.id), key_id=key_id)
            if not entries:
                raise NotFound(f"Item with id {item.id!r} not found.", param="input", code="item_not_found")
            found += [item_of_entry(entry) for entry in entries]
        return found

    async def _mixed_turns(
        self, items: Sequence[AnyItem], known: set[str], key_id: str
    ) -> tuple[dict[str, list[AnyItem]], list[str]]:
        """Find the stored turns that the calls among the items belong to, and the unstored runs that have them."""
        calls = {item.call_id: item for item in items if type(item) is CallItem and item.call_id not in known}
        if not calls:
            return {}, []
        questions = {text_of(item.content) for item in items if type(item) is MessageItem and item.role == "user"}
        turns: dict[str, list[AnyItem]] = {}
        unstored_runs: list[str] = []
        for stored in await self._store.find_turns(list(calls), list(questions), key_id=key_id):
            turn = [item_of_entry(entry) for entry in stored.entries]
            names = [known_id for piece in turn for known_id in _ids(piece)]
            if not _matches_turn(turn, calls) or not turns.keys().isdisjoint(names):
                continue
            if not stored.is_kept:
                unstored_runs.append(stored.run_id)
            turns.update(dict.fromkeys(names, turn))
        return turns, unstored_runs


def input_entries(items: Sequence[AnyItem], row: RunRow) -> list[Entry]:
    """Return the input of a run as entries. In a stored run, which clients can refer to, items without an id are named
    by the run and their position."""
    at, stem = row.created_at, row.id.partition("_")[2]
    if not row.store:
        return [entry_of_item(item, at=at, is_input=True) for item in items]
    return [
        entry_of_item(item, at=at, is_input=True, name=f"{_PREFIX.get(type(item), ITEM)}_{stem}_{place}")
        for place, item in enumerate(items, 1)
    ]


def _is_approval_call(item: AnyItem) -> TypeGuard[CallItem]:
    return type(item) is CallItem and is_approval_call(item)


class _ResentRequests(msgspec.Struct):
    """The approval requests that a client sent back: their turns, or the ids of calls that are stored already."""

    known: set[str] = set()
    turns: dict[str, list[AnyItem]] = {}
    requests: dict[str, RequestRecord] = {}
    unstored_runs: list[str] = []

    def is_known(self, item: AnyItem) -> bool:
        """Return whether an item only repeats an approval request whose call is stored."""
        return isinstance(item, CallItem) and item.call_id in self.known


def is_approval_call(call: CallItem) -> bool:
    """Return whether a call was sent back as its approval request."""
    return call.side == "server" and call.call_id.startswith(f"{APPROVAL}_")


def _last_turn(entries: Sequence[Entry]) -> list[AnyItem]:
    """Return the items of a run's last round."""
    own = [entry for entry in entries if not entry.is_input]
    start = max((at for at, entry in enumerate(own) if entry.kind == "plan"), default=len(own))
    return [item_of_entry(entry) for entry in own[start:] if entry.kind in ITEM_KINDS]


def _requests_of(entries: Sequence[Entry]) -> dict[str, RequestRecord]:
    """Return the deferred approval requests of a run, by call."""
    records = {
        entry.call_id or "": msgspec.json.decode(entry.data or b"{}", type=RequestRecord)
        for entry in entries
        if entry.kind == "approval_request"
    }
    return {call_id: record for call_id, record in records.items() if record.is_deferred}


def _approval_ids(entries: Sequence[Entry]) -> list[str]:
    return [record.approval_id for record in _requests_of(entries).values()]


def _waiting(items: Sequence[AnyItem], requests: Mapping[str, RequestRecord]) -> tuple[WaitingCall, ...]:
    """Return the calls that wait for a decision and have no result yet."""
    if not requests:
        return ()
    answered = {item.call_id for item in items if isinstance(item, ResultItem)}
    calls = {item.call_id: item for item in items if isinstance(item, CallItem)}
    return tuple(
        WaitingCall(call=call, record=requests[call_id])
        for call_id, call in calls.items()
        if call_id in requests and call_id not in answered
    )


async def read_history(store: Store, run_id: str, *, for_next: bool = False) -> list[AnyItem]:
    """Return the conversation up to the end of a run, without voided items.

    Items without an id are named by their position, so that they can be listed; `for_next` is as in `Store.entries`.
    Raises: NotFound, Damaged.
    """
    try:
        return await _read_history(store, run_id, for_next)
    except UNREADABLE as error:
        raise DamagedJournal(f"The conversation up to the run {run_id} cannot be read.") from error


async def _read_history(store: Store, run_id: str, for_next: bool) -> list[AnyItem]:
    items: list[AnyItem] = []
    for number, entry in enumerate(await store.history(run_id, for_next=for_next), 1):
        if entry.kind == "void":
            items = _without(items, msgspec.json.decode(entry.data or b"{}", type=_Void))
            continue
        item = item_of_entry(entry)
        place = f"{_PREFIX.get(type(item), ITEM)}_{number}"
        items.append(item if item.id else msgspec.structs.replace(item, id=place))
    return items


def _without(items: list[AnyItem], void: _Void) -> list[AnyItem]:
    return [
        item
        for item in items
        if item.id not in void.items and not (isinstance(item, CallItem | ResultItem) and item.call_id in void.calls)
    ]


def _matches_turn(turn: Sequence[AnyItem], calls: Mapping[str, CallItem]) -> bool:
    """Return whether the client sends all of this turn's client calls.

    Some providers number their call ids from zero in every reply, so the id alone proves nothing: the name and the
    canonical arguments must match too.
    """
    own = [piece for piece in turn if isinstance(piece, CallItem) and piece.side == "client"]
    sent = [(piece, calls[piece.call_id]) for piece in own if piece.call_id in calls]
    return 0 < len(own) == len(sent) and all(_signature(piece) == _signature(call) for piece, call in sent)


def _signature(call: CallItem) -> tuple[str, bytes]:
    try:
        return call.name, canonical_json(read_json(call.arguments))
    except BadJson:
        return call.name, call.arguments.encode("utf-8", "replace")


def _ids(item: AnyItem) -> set[str]:
    """Return every id that a client may know a call by."""
    return {item.call_id, shown_call_id(item.id)} if isinstance(item, CallItem) else set()


def rejoin(items: Sequence[AnyItem], turns: Mapping[str, Sequence[AnyItem]]) -> list[AnyItem]:
    """Complete each mixed turn: its reasoning in its place among the texts, all calls as the model made them, then all
    results in call order.

    `turns` maps every id by which a client may know a call of a stored turn to that turn.
    """
    if not turns:
        return list(items)
    sent = {item.call_id: item for item in items if isinstance(item, ResultItem)}
    joined: list[AnyItem] = []
    done: set[int] = set()
    for item in items:
        if not isinstance(item, CallItem | ResultItem) or item.call_id not in turns:
            joined.append(item)
            continue
        turn = turns[item.call_id]
        if id(turn) in done:
            continue
        done.add(id(turn))
        calls = [piece for piece in turn if isinstance(piece, CallItem)]
        stored = {piece.call_id: piece for piece in turn if isinstance(piece, ResultItem)}
        _add_reasoning(joined, turn)
        joined.extend(calls)
        joined.extend(result for call in calls if (result := _result_of(call, stored, sent)) is not None)
    return joined


def _result_of(call: CallItem, stored: Mapping[str, ResultItem], sent: Mapping[str, ResultItem]) -> ResultItem | None:
    """Return the result of a call: the stored one, else the client's, under any id it knows the call by."""
    if call.call_id in stored:
        return stored[call.call_id]
    result = next((sent[known] for known in (call.call_id, *_ids(call)) if known in sent), None)
    return None if result is None else msgspec.structs.replace(result, call_id=call.call_id)


def _add_reasoning(items: list[AnyItem], turn: Sequence[AnyItem]) -> None:
    """Add a turn's reasoning to items that end with the client's copy of the turn up to its calls.

    The reasoning goes among the texts where the model had it and replaces the client's copy. Texts that are not of the
    turn stay before it.
    """
    if not any(isinstance(piece, ReasoningItem) for piece in turn):
        return
    start = len(items)
    while start and (isinstance(items[start - 1], ReasoningItem) or _is_assistant_message(items[start - 1])):
        start -= 1
    texts = deque(item for item in items[start:] if _is_assistant_message(item))
    del items[start:]
    for _ in range(len(texts) - sum(map(_is_assistant_message, turn))):
        items.append(texts.popleft())
    for piece in turn:
        if isinstance(piece, ReasoningItem):
            items.append(piece)
        elif texts and _is_assistant_message(piece):
            items.append(texts.popleft())


def _is_assistant_message(item: AnyItem) -> bool:
    return isinstance(item, MessageItem) and item.role == "assistant"


def close_orphans(items: Sequence[AnyItem], spared: Collection[str] = ()) -> list[AnyItem]:
    """Add an error result for every call that has none, after the calls of its turn; `spared` calls stay open."""
    answered = {*spared, *[item.call_id for item in items if type(item) is ResultItem]}
    closed: list[AnyItem] = []
    waiting: list[CallItem] = []
    for item in items:
        if waiting and type(item) not in _AMONG_CALLS:
            closed += _interrupted(waiting)
            waiting = []
        closed.append(item)
        if type(item) is CallItem and item.call_id not in answered:
            waiting.append(item)
    return [*closed, *_interrupted(waiting)]


def _interrupted(calls: Sequence[CallItem]) -> list[ResultItem]:
    return [text_result(call, INTERRUPTED, is_error=True, rc="interrupted") for call in calls]


def _new_items(closed: list[AnyItem], before: list[AnyItem]) -> list[AnyItem]:
    """Return the items that are not stored yet: a result that closes an earlier run's call may be among stored ones."""
    stored = iter(before)
    expected = next(stored, None)
    fresh: list[AnyItem] = []
    for item in closed:
        if expected is not None and item is expected:
            expected = next(stored, None)
        else:
            fresh.append(item)
    return fresh


def _notes(closed: int) -> tuple[Note, ...]:
    if closed <= 0:
        return ()
    message = f"{closed} call(s) without a result were closed as interrupted."
    return (Note(code="orphan_call_closed", action="repaired", message=message, field=HISTORY, count=closed),)
