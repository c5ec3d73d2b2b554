"""Replays an ended run to verify that it takes the same steps, and builds requests that fork a run at a round."""

from asyncio import Future
from collections.abc import AsyncGenerator, Sequence

import msgspec

from treadle.core.errors import RequestError, UpstreamError
from treadle.core.events import ModelEvent, Noted, Numbered, RunEnded
from treadle.core.ids import IdSource
from treadle.core.items import AnyItem, CallItem
from treadle.core.journal_entries import ITEM_KINDS, Entry, item_of_entry
from treadle.core.plan import Plan
from treadle.core.request import Note, Request
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.engine.ports import ApprovalVerdict, PendingApproval, PermissionRequest
from treadle.engine.recorded_run import RecordedRun
from treadle.engine.run_loop import Ports
from treadle.journal.write_futures import done
from treadle.runs.recovery.run_record import RunRecord
from treadle.runs.replay.comparing_journal import Diverged, EntryComparison
from treadle.runs.replay.event_replay import replay_journal

FORKED = "forked"
"""The code of the note that names the run a fork was made from."""


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay. `problem` says where it diverged, if it did."""

    rounds: int
    calls: int
    entries: int
    events: int
    problem: str | None = None

    @property
    def is_same(self) -> bool:
        """Return whether the replay equals the recorded run, byte for byte."""
        return self.problem is None


class RecordedModel:
    """A model that replays recorded answers, call by call, whatever the plan."""

    def __init__(self, recorded: RecordedRun) -> None:
        self._recorded = recorded
        self._calls_made = 0

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Yield the next recorded reply.

        Raises: UpstreamError, when there is none.
        """
        number, self._calls_made = self._calls_made, self._calls_made + 1
        known = self._recorded.round(number)
        if known is None or known.reply is None:
            raise UpstreamError(f"The record has no model call {number + 1}.", code="record_over")
        yield self._recorded.model_events(number, known.reply.base)


class _NoPorts:
    """Fails on every use of a model, toolbox or approver: a replay must not need them."""

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        raise Diverged("The model was asked for more than the journal has.")
        yield []

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        raise Diverged(f"The tool {call.name!r} was called, and the journal has no result of it.")

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        raise Diverged(f"The tool {request.call.name!r} wanted an approval that the journal does not have.")

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        raise Diverged(f"The approval {approval_id} was waited for, and the journal has no decision of it.")


class _ComparingJournal:
    """A journal that only compares."""

    def __init__(self, recorded: Sequence[Entry]) -> None:
        self.comparison = EntryComparison(recorded)

    def append(self, entries: Sequence[Entry], ended: RunEnded | None = None) -> "Future[int]":
        known, fresh = self.comparison.take(entries)
        if fresh:
            raise Diverged(f"The run went on with a {fresh[0].kind!r} where the journal ends.")
        return done(known[-1].seq)


async def verify_replay(record: RunRecord, entries: Sequence[Entry], clock: Clock, ids: IdSource) -> Proof:
    """Replay an ended run, and compare every entry and every event with the recorded ones."""
    no_ports = _NoPorts()
    ports = Ports(model=no_ports, toolbox=no_ports, clock=clock, approver=no_ports, ids=ids)
    journal = _ComparingJournal(record.rest)
    replayed = list(record.opening)
    problem: str | None = None
    try:
        await record.loop(ports).run(journal, replayed.extend)
        problem = _missing_entries(journal.comparison.expected) or _first_difference(replay_journal(entries), replayed)
    except Diverged as error:
        problem = error.message
    own = [entry for entry in entries if not entry.is_input]
    return Proof(
        rounds=sum(entry.kind == "plan" for entry in own),
        calls=sum(entry.kind == "tool_call" for entry in own),
        entries=len(own),
        events=len(replayed),
        problem=problem,
    )


def fork_request(
    record: RunRecord, entries: Sequence[Entry], *, round_number: int = 1, model: str | None = None
) -> Request:
    """Return a request that continues from just before a round of a run, optionally with another model.

    The run's items before that round become input; no tool runs again.
    Raises: RequestError for a round that the run does not have.
    """
    request = record.blueprint.request
    earlier: list[AnyItem] = []
    rounds = 0
    for entry in entries:
        rounds += entry.kind == "plan"
        if rounds < round_number and entry.kind in ITEM_KINDS and not entry.is_input:
            earlier.append(item_of_entry(entry))
    if not 1 <= round_number <= rounds:
        raise RequestError(f"There is no round {round_number}: the run has {rounds}.", param="round")
    notes = [note for note in request.notes if note.code != FORKED]
    note = Note(
        code=FORKED,
        action="kept",
        message=f"This run goes on from round {round_number} of {record.blueprint.row.id}.",
    )
    return msgspec.structs.replace(
        request,
        model=model or record.blueprint.row.model,
        items=(*record.added, *earlier),
        previous_response_id=None,
        background=False,
        is_fresh=True,
        notes=(*notes, note),
    )


def _missing_entries(expected: Entry | None) -> str | None:
    if expected is None:
        return None
    return f"The run ended, and the journal goes on with entry {expected.seq} ({expected.kind})."


def _first_difference(first: Sequence[Numbered], again: Sequence[Numbered]) -> str | None:
    """Describe the first difference between two event sequences, if any; times are ignored."""
    for number, (one, other) in enumerate(zip(first, again, strict=False), 1):
        if _timeless(one) != _timeless(other):
            return f"Event {number} was {_name(one)}, and this time {_name(other)}."
    if len(first) != len(again):
        return f"The journal tells {len(first)} events, and this time there were {len(again)}."
    return None


def _timeless(numbered: Numbered) -> Numbered:
    event = numbered.event
    if isinstance(event, RunEnded):
        return msgspec.structs.replace(numbered, event=msgspec.structs.replace(event, ended_at=0.0))
    return numbered


def _name(numbered: Numbered) -> str:
    event = numbered.event
    tag = str(event.__struct_config__.tag)
    return f"{tag} ({event.note.code})" if isinstance(event, Noted) else tag
