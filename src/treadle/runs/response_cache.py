"""Answers a model call from the journal if a run of the same key has completed an equal plan.

There is no second store: the journal finds plans by fingerprint and reproduces answers delta by delta. So content that
is purged, deleted or expired is never served, and a key only sees its own runs.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Literal

import msgspec

from treadle.core.errors import TreadleError
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent, Noted
from treadle.core.ids import ITEM, IdSource
from treadle.core.journal_entries import Entry
from treadle.core.plan import Plan
from treadle.core.request import Note, Request
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import Offer
from treadle.core.usage import Usage
from treadle.engine.ports import Model
from treadle.engine.recorded_run import RecordedRun
from treadle.journal.hash_chain import plan_fingerprint
from treadle.journal.journal_interface import RunRow, Store
from treadle.protocols.translation_notes import HOSTED

CacheOutcome = Literal["hit", "miss"]
HIT = "cache_hit"
"""The code of the note on a cached answer; its field is the id of the run that called the model."""
CANDIDATES_MAX = 4
"""How many of the newest runs with an equal plan are checked before the model is called."""
_WHOLE = ("done", "stop_sequence", "calls")


class CacheRules(msgspec.Struct, frozen=True, kw_only=True):
    """How old and how large a cached answer may be."""

    ttl_s: float = 86_400.0
    bytes_max: int = 1_048_576


class CachedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded answer and its run."""

    run_id: str
    events: tuple[ModelEvent, ...]


def is_repeatable(request: Request, offers: Mapping[str, Offer]) -> bool:
    """Return whether a cached answer is acceptable for a request: only if its tools cannot have an effect.

    Tools of the client and of the provider may have any. Several choices must differ, and a strict request must be
    translated again to find what is lost.
    """
    if request.is_fresh or request.strict_fidelity or request.surface.choices != 1 or HOSTED in request.options.extra:
        return False
    return all(_only_reads(offer) for offer in offers.values())


class ResponseCache:
    """Finds answers in the store."""

    def __init__(self, store: Store, clock: Clock, rules: CacheRules) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules

    async def find(self, fingerprint: str, key_id: str) -> CachedAnswer | None:
        """Return the newest usable answer to this plan in a completed run of this key."""
        try:
            rows = await self._store.list_runs(
                limit=CANDIDATES_MAX, status="completed", key_id=key_id, fingerprint=fingerprint
            )
            for row in rows:
                answer = await self._original_answer(row, fingerprint, key_id)
                if answer is not None:
                    return answer
        except TreadleError:
            # If the cache cannot be read, the model is called.
            return None
        return None

    async def _original_answer(self, row: RunRow, fingerprint: str, key_id: str) -> CachedAnswer | None:
        """Return the answer of a run; for a cached answer the original one, so that its true age counts."""
        answer = await self._answer_of(row, fingerprint)
        origin = None if answer is None else _origin_of(answer.events)
        if origin is None:
            return answer
        first = await self._store.find_run(origin, key_id=key_id)
        return None if first is None or first.status != "completed" else await self._answer_of(first, fingerprint)

    async def _answer_of(self, row: RunRow, fingerprint: str) -> CachedAnswer | None:
        is_old = row.ended_at is None or row.ended_at < self._clock.now() - self._rules.ttl_s
        if is_old or not row.store:
            return None
        entries = [entry for entry in await self._store.entries(row.id) if not entry.is_input]
        try:
            events = _answer_to(fingerprint, entries, self._rules.bytes_max)
        except (msgspec.MsgspecError, ValueError, AssertionError):
            # A damaged journal has no answer.
            return None
        return None if events is None else CachedAnswer(run_id=row.id, events=tuple(events))


class CachedModel:
    """A model that is only called on a cache miss. Fits the engine's `Model` port."""

    def __init__(
        self, model: Model, answers: ResponseCache, ids: IdSource, key_id: str, count: Callable[[CacheOutcome], None]
    ) -> None:
        self._model = model
        self._cache = answers
        self._ids = ids
        self._key_id = key_id
        self._count = count
        self.first: CacheOutcome | None = None

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Yield the cached answer to an equal plan, else the model's own.

        Raises: as the model.
        """
        answer = await self._cache.find(plan.fingerprint, self._key_id)
        outcome: CacheOutcome = "miss" if answer is None else "hit"
        self.first = self.first or outcome
        self._count(outcome)
        if answer is not None:
            yield self._replayed(answer)
            return
        stream = self._model.stream(plan, run_id)
        try:
            async for batch in stream:
                yield batch
        finally:
            await stream.aclose()

    def _replayed(self, answer: CachedAnswer) -> list[ModelEvent]:
        """Return a cached answer with new item ids and zero usage. Call ids stay, so that later plans are equal too."""
        note = Note(code=HIT, action="kept", message=f"The answer is that of {answer.run_id}.", field=answer.run_id)
        events: list[ModelEvent] = [Noted(note=note)]
        fresh: dict[int, str] = {}
        for event in answer.events:
            if isinstance(event, ItemAdded | ItemDone):
                prefix = event.item.id.rpartition("_")[0] or ITEM
                item_id = fresh.setdefault(event.index, self._ids.new(prefix))
                events.append(msgspec.structs.replace(event, item=msgspec.structs.replace(event.item, id=item_id)))
            elif isinstance(event, Finished):
                events.append(msgspec.structs.replace(event, usage=Usage()))
            else:
                events.append(event)
        return events


def _only_reads(offer: Offer) -> bool:
    policy = offer.policy
    return offer.side == "server" and policy is not None and policy.effect == "read" and not policy.exec


def _answer_to(fingerprint: str, entries: Sequence[Entry], bytes_max: int) -> list[ModelEvent] | None:
    """Return the answer of the last complete model call of a run that had this plan."""
    sizes: list[int] = []
    wanted: list[int] = []
    for entry in entries:
        if entry.kind == "plan":
            if plan_fingerprint(entry) == fingerprint:
                wanted.append(len(sizes))
            sizes.append(0)
        elif sizes:
            sizes[-1] += _size(entry)
    recorded = RecordedRun(entries)
    for number in reversed(wanted):
        known = recorded.round(number)
        is_whole = known is not None and known.reply is not None and known.reply.ending == "finished"
        if not is_whole or sizes[number] > bytes_max:
            continue
        assert known is not None
        assert known.reply is not None
        events = recorded.model_events(number, known.reply.base)
        if isinstance(events[-1], Finished) and events[-1].stop in _WHOLE:
            return events
    return None


def _origin_of(events: Sequence[ModelEvent]) -> str | None:
    notes = (event.note for event in events if isinstance(event, Noted))
    return next((note.field for note in notes if note.code == HIT), None)


def _size(entry: Entry) -> int:
    return len((entry.content or "").encode("utf-8", "replace")) + (0 if entry.data is None else len(bytes(entry.data)))
