"""What the model reads before the new input: the chain of earlier runs, and turns of which the client knows half.

Three things are put right here, once, for every upstream: references become the items they name, a mixed turn
(server and client calls of one reply) is joined again in call order, and a call that never got a result is closed.
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
"""What may stand between the calls of a turn and before their results."""
INTERRUPTED = '{"error":{"code":"interrupted","message":"Interrupted, outcome unknown."}}'


class _Void(msgspec.Struct, frozen=True):
    """The data of a `void` entry: which items before it no model shall read again."""

    items: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()


class JoinedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation up to the model's turn: `before` is stored already, `added` is this run's input.

    `rejoined` are runs that were remembered for this one alone, `waiting` calls that an earlier run left for a person
    to decide, `repeated` the questions that the client itself sent back with its input. `is_talk` says that all of it
    is messages.
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
    """What the frame of a run says of the runs that were kept for it."""

    rejoined: tuple[str, ...] = ()


class ConversationHistory:
    """Joins requests with what the store remembers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def join(self, request: Request, *, key_id: str, previous_run_id: str | None = None) -> JoinedHistory:
        """Return the whole conversation of a request.

        Raises: NotFound for an id that the caller has not stored, ProtocolError for a result without its call.
        """
        kinds = {*map(type, request.items)}
        if previous_run_id is None and request.previous_response_id is None and kinds <= {MessageItem}:
            # The store cannot know more about what is nothing but talk.
            return JoinedHistory(before=(), added=request.items, is_messages_only=True)
        previous = await self._previous(request, key_id, previous_run_id)
        before = await self._stored_items(previous)
        added = [*request.items] if ReferenceItem not in kinds else await self._resolved(request.items, key_id)
        known = {item.call_id for item in before if type(item) is CallItem}
        asked = await self._find_resent(added, known, key_id)
        if asked.known:
            added = [item for item in added if not asked.is_known(item)]
        turns, passing = await self._mixed_turns(added, known, key_id)
        added = rejoin(added, {**turns, **asked.turns})
        repairs: tuple[Note, ...] = ()
        if ResultItem in kinds or CallItem in kinds:
            check_results(request, added, known)
            repairs = note_repairs(added)
        waiting = _waiting([*before, *added], asked.requests | await self._requests(previous))
        closed = close_orphans([*before, *added], {each.call.call_id for each in waiting})
        kept_for_this = () if previous is None or previous.store else (previous.id,)
        return JoinedHistory(
            before=tuple(before),
            added=tuple(_new_items(closed, before)),
            previous=previous,
            rejoined=await self._with_earlier((*passing, *asked.unstored_runs, *kept_for_this)),
            notes=(*repairs, *_notes(len(closed) - len(before) - len(added))),
            waiting=waiting,
            repeated=frozenset([item.call_id for item in request.items if _is_approval_call(item)]),
        )

    async def _with_earlier(self, run_ids: Sequence[str]) -> tuple[str, ...]:
        """Add to the runs that are kept for this one those that were kept for them: open turns may follow one another.

        Each says in its frame which those were, so it is one look back for each.
        """
        found = dict.fromkeys(run_ids)
        for run_id in run_ids:
            for entry in await self._store.entries(run_id, for_next=True):
                if entry.kind == "frame" and entry.data is not None:
                    found |= dict.fromkeys(msgspec.json.decode(entry.data, type=_Remembered).rejoined)
                    break
        return tuple(found)

    async def _requests(self, previous: RunRow | None) -> dict[str, RequestRecord]:
        """Return what the run before left to be decided, by call."""
        if previous is None or previous.status != "requires_action":
            return {}
        return _requests_of(await self._store.entries(previous.id, for_next=True))

    async def _find_resent(self, items: Sequence[AnyItem], known: set[str], key_id: str) -> "_ResentRequests":
        """Find the turns of the questions among the items, by which a client may send a stored call back."""
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
        """Return whether a run that is not stored left something for the one that answers its open calls."""
        is_open = row.status == "requires_action"
        return is_open and bool(await self._store.entries(row.id, limit=1, for_next=True))

    async def _stored_items(self, previous: RunRow | None) -> list[AnyItem]:
        return [] if previous is None else await read_history(self._store, previous.id, for_next=True)

    async def _resolved(self, items: Sequence[AnyItem], key_id: str) -> list[AnyItem]:
        """Return what the items stand for; a server call that is only named brings its result along."""
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
        """Find the remembered turns that the calls among the items belong to, and the runs kept for them alone."""
        calls = {item.call_id: item for item in items if type(item) is CallItem and item.call_id not in known}
        if not calls:
            return {}, []
        questions = {text_of(item.content) for item in items if type(item) is MessageItem and item.role == "user"}
        turns: dict[str, list[AnyItem]] = {}
        passing: list[str] = []
        for stored in await self._store.find_turns(list(calls), list(questions), key_id=key_id):
            turn = [item_of_entry(entry) for entry in stored.entries]
            names = [known_id for piece in turn for known_id in _ids(piece)]
            if not _matches_turn(turn, calls) or not turns.keys().isdisjoint(names):
                continue
            if not stored.is_kept:
                passing.append(stored.run_id)
            turns.update(dict.fromkeys(names, turn))
        return turns, passing


def input_entries(items: Sequence[AnyItem], row: RunRow) -> list[Entry]:
    """Return the input of a run as entries. Where somebody can refer to them, since a stored run can be gone on with,
    those without an id are named by the run and their place in it."""
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
    """What is known of the questions that a client sent back: whole turns, or only that they are known already."""

    known: set[str] = set()
    turns: dict[str, list[AnyItem]] = {}
    requests: dict[str, RequestRecord] = {}
    unstored_runs: list[str] = []

    def is_known(self, item: AnyItem) -> bool:
        """Return whether an item only repeats a question whose call is stored."""
        return isinstance(item, CallItem) and item.call_id in self.known


def is_approval_call(call: CallItem) -> bool:
    """Return whether a call is sent back as the question that was asked about it."""
    return call.side == "server" and call.call_id.startswith(f"{APPROVAL}_")


def _last_turn(entries: Sequence[Entry]) -> list[AnyItem]:
    """Return the items of a run's last round."""
    own = [entry for entry in entries if not entry.is_input]
    start = max((at for at, entry in enumerate(own) if entry.kind == "plan"), default=len(own))
    return [item_of_entry(entry) for entry in own[start:] if entry.kind in ITEM_KINDS]


def _requests_of(entries: Sequence[Entry]) -> dict[str, RequestRecord]:
    """Return the questions that a run did not wait for, by call."""
    records = {
        entry.call_id or "": msgspec.json.decode(entry.data or b"{}", type=RequestRecord)
        for entry in entries
        if entry.kind == "approval_request"
    }
    return {call_id: record for call_id, record in records.items() if record.is_deferred}


def _approval_ids(entries: Sequence[Entry]) -> list[str]:
    return [record.approval_id for record in _requests_of(entries).values()]


def _waiting(items: Sequence[AnyItem], requests: Mapping[str, RequestRecord]) -> tuple[WaitingCall, ...]:
    """Return the calls that were left to be decided and have no result yet."""
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
    """Return the conversation up to the end of a run, without what was taken back.

    What has no id of its own is named by its place, for whoever lists it; `for_next` is as in `Store.entries`.
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
    """Return whether the client sends the calls of this turn, all that it was left with.

    Some upstreams count their call ids from zero in every reply, so the id alone proves nothing: the name and the
    arguments must be the same too, however they are spelled.
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
    """Put each mixed turn together again: its reasoning where it stood among the texts, all its calls as the model made
    them, then all results in call order.

    `turns` maps every id that a client may know a call of a remembered turn by to that turn.
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
        kept = {piece.call_id: piece for piece in turn if isinstance(piece, ResultItem)}
        _add_reasoning(joined, turn)
        joined.extend(calls)
        joined.extend(result for call in calls if (result := _result_of(call, kept, sent)) is not None)
    return joined


def _result_of(call: CallItem, kept: Mapping[str, ResultItem], sent: Mapping[str, ResultItem]) -> ResultItem | None:
    """Return the result of a call: as it is kept, else as the client sends it, by whichever id it knows the call."""
    if call.call_id in kept:
        return kept[call.call_id]
    result = next((sent[known] for known in (call.call_id, *_ids(call)) if known in sent), None)
    return None if result is None else msgspec.structs.replace(result, call_id=call.call_id)


def _add_reasoning(items: list[AnyItem], turn: Sequence[AnyItem]) -> None:
    """Add a turn's reasoning to items that end with what the client sends of the turn before its calls.

    It stands among the client's texts as it did among the model's, and what the client sends back of it goes. Texts
    that the turn does not have stay before it.
    """
    if not any(isinstance(piece, ReasoningItem) for piece in turn):
        return
    start = len(items)
    while start and (isinstance(items[start - 1], ReasoningItem) or _is_assistant_message(items[start - 1])):
        start -= 1
    said = deque(item for item in items[start:] if _is_assistant_message(item))
    del items[start:]
    for _ in range(len(said) - sum(map(_is_assistant_message, turn))):
        items.append(said.popleft())
    for piece in turn:
        if isinstance(piece, ReasoningItem):
            items.append(piece)
        elif said and _is_assistant_message(piece):
            items.append(said.popleft())


def _is_assistant_message(item: AnyItem) -> bool:
    return isinstance(item, MessageItem) and item.role == "assistant"


def close_orphans(items: Sequence[AnyItem], spared: Collection[str] = ()) -> list[AnyItem]:
    """Give every call that has no result one that says so, after the calls it stands among; `spared` ones wait."""
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
    """Return what is not stored yet: closing an orphan of an earlier run puts its result among the stored items."""
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
