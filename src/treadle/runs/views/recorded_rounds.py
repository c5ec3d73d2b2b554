"""Reads the model calls of a stored run: the exact plan of each, its events, and how it ended.

A plan is rebuilt from the journal and verified by the fingerprint that was journalled with it.
"""

from collections.abc import Sequence

import msgspec

from treadle.core.errors import Conflict, ErrorInfo
from treadle.core.events import ENDED, ModelEvent
from treadle.core.items import AnyItem, ResultItem, text_message
from treadle.core.journal_entries import ITEM_KINDS, Entry, item_of_entry
from treadle.core.plan import Plan, Planner
from treadle.core.tool_definitions import AUTO, Offer, ToolChoice, ToolSpec
from treadle.engine.recorded_run import Ending, ReplyRecord
from treadle.engine.run_state import merge_carried_results
from treadle.journal.journal_interface import RunRow, Store
from treadle.runs.conversation_history import read_history
from treadle.runs.recovery.run_record import RunRecord, UnreadableRun, read_record
from treadle.runs.run_setup import Blueprint


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call as it was made. `results` are what its calls gave, in the order of the journal."""

    plan: Plan
    events: tuple[ModelEvent, ...]
    items: tuple[AnyItem, ...]
    results: tuple[ResultItem, ...]
    reply: ReplyRecord
    asked_at: float
    replied_at: float

    @property
    def ending(self) -> Ending:
        """Return how it ended."""
        return self.reply.ending

    @property
    def error(self) -> ErrorInfo | None:
        """Return what broke it, if anything did."""
        return self.reply.error


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run read back: what it was asked, what it offered, and its model calls."""

    row: RunRow
    added: tuple[AnyItem, ...]
    offers: dict[str, Offer]
    calls: tuple[ModelCall, ...]


class _PlanData(msgspec.Struct):
    fingerprint: str = ""
    tool_choice: ToolChoice = AUTO


async def read_run(store: Store, row: RunRow) -> StoredRun:
    """Read an ended run.

    Raises: Conflict, when it is active, of an older version, or does not give the plans it was made with.
    """
    if row.status not in ENDED:
        raise Conflict(f"The run {row.id!r} is still going on.", param="run")
    return await read_so_far(store, row)


async def read_so_far(store: Store, row: RunRow) -> StoredRun:
    """Read a run as far as it has come; a model call in progress counts as interrupted.

    Raises: Conflict, when it is of an older Treadle, or does not give the plans it was made with.
    """
    before = [] if row.previous_id is None else await read_history(store, row.previous_id)
    try:
        record = await read_record(store, row, before)
    except UnreadableRun as error:
        raise Conflict(f"{error} Only a run that was stored whole can be made again.", param="run") from None
    offers = offers_of(record.blueprint)
    calls = _Reader(record, offers).read(record.entries)
    return StoredRun(row=row, added=record.added, offers=offers, calls=tuple(calls))


def offers_of(blueprint: Blueprint) -> dict[str, Offer]:
    """Return the tools that a run offered, by name, in their order."""
    own = {spec.name: Offer(spec=spec, side="client") for spec in blueprint.request.tools}
    return {framed.name: framed.offer or own[framed.name] for framed in blueprint.frame.offers}


class _Reader:
    """Builds the model calls of a run from its entries."""

    def __init__(self, record: RunRecord, offers: dict[str, Offer]) -> None:
        request = record.blueprint.request
        specs: tuple[ToolSpec, ...] = tuple(offer.spec for offer in offers.values())
        self._planner = Planner(record.blueprint.row.model, specs, request.options)
        if request.instructions:
            self._planner.add([text_message("system", request.instructions)])
        head, self._carried = record.blueprint.initial_history()
        self._planner.add(head)
        self._record = record
        self._number = -1
        self._calls: list[ModelCall] = []
        self._plan: tuple[Plan, float] | None = None
        self._reply: tuple[ReplyRecord, float] | None = None
        self._items: list[AnyItem] = []
        self._results: list[ResultItem] = []

    def read(self, entries: Sequence[Entry]) -> list[ModelCall]:
        """Return the model calls that count, in order. Raises: Conflict."""
        for entry in entries:
            if not entry.is_input:
                self._take(entry)
        self._end_call()
        return self._calls

    def _take(self, entry: Entry) -> None:
        match entry.kind:
            case "plan":
                self._end_call()
                self._number += 1
                self._plan = self._plan_of(entry), entry.at
            case "reply" if entry.data is not None:
                self._reply = msgspec.json.decode(entry.data, type=ReplyRecord), entry.at
            case "void":
                # The interrupted call is void and is repeated with the same plan.
                self._plan, self._reply, self._items, self._results = None, None, [], []
            case kind if kind in ITEM_KINDS:
                item = item_of_entry(entry)
                if isinstance(item, ResultItem):
                    self._results.append(item)
                elif self._reply is None:
                    self._items.append(item)
            case _:
                pass

    def _plan_of(self, entry: Entry) -> Plan:
        data = msgspec.json.decode(entry.data or b"{}", type=_PlanData)
        plan = self._planner.plan(data.tool_choice)
        if plan.fingerprint != data.fingerprint:
            raise Conflict(f"The plan of entry {entry.seq} cannot be made again from the journal.", param="run")
        return plan

    def _end_call(self) -> None:
        """Finish the current call, and add its items and results to the history of the next plan."""
        if self._plan is None:
            if self._carried is not None:
                self._planner.add(merge_carried_results(self._carried, self._results))
                self._carried, self._results = None, []
            return
        plan, asked_at = self._plan
        reply, replied_at = self._reply or (ReplyRecord(ending="interrupted"), asked_at)
        self._calls.append(
            ModelCall(
                plan=plan,
                events=tuple(self._record.steps.model_events(self._number, reply.base)),
                items=tuple(self._items),
                results=tuple(self._results),
                reply=reply,
                asked_at=asked_at,
                replied_at=replied_at,
            )
        )
        self._planner.add([*self._items, *self._results])
        self._plan, self._reply, self._items, self._results = None, None, [], []
