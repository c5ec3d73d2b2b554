"""How a run is set up: its loop, and the entries that become durable together before anything else happens.

The `frame` entry freezes what the loop was made with besides the request: which tools it offers and under which
policy, and its limits. So the same loop can be made again on another day, in another process.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from treadle.core.events import Noted, Numbered, RunStarted
from treadle.core.items import AnyItem, text_message
from treadle.core.journal_entries import Entry
from treadle.core.memoized import Memo
from treadle.core.plan import Planner
from treadle.core.request import Note, Request
from treadle.core.tool_definitions import GUEST, CallContext, Offer, ToolChoice, ToolPolicy, ToolSpec, essence
from treadle.engine.limits import Limits
from treadle.engine.recorded_run import RecordedRun
from treadle.engine.run_decisions import CarriedCalls
from treadle.engine.run_loop import Ports, RunLoop
from treadle.engine.run_state import RunState
from treadle.journal.journal_interface import RunRow
from treadle.runs.approvals.pending_turn import ResumedTurn
from treadle.runs.tool_offers import Offered


class FramedOffer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An offer by name; one of the client's own is in the request and need not be repeated."""

    name: str
    offer: Offer | None = None


class RunFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What a run's loop was made with besides its request: the data of a `frame` entry.

    `carried` are calls of an earlier run that it begins with. `tainted` are tools that it does not offer, with where
    they came from, whose untrusted output is in the conversation already. `rejoined` are runs whose content is kept
    for this one alone. Most runs have the frame of the run before.
    """

    offers: tuple[FramedOffer, ...]
    choice: ToolChoice
    limits: Limits
    carried: ResumedTurn | None = None
    tainted: dict[str, str] = {}
    rejoined: tuple[str, ...] = ()

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """Where the server tools come from that the run may call, by name."""
        return {**_sources(self.offers), **_sources(self.carried.calls if self.carried is not None else ())}

    @cached_property
    def tools(self) -> dict[str, str]:
        """What must be the same of the server tools that the run may call, by name; none of a guest's."""
        calls = self.carried.calls if self.carried is not None else ()
        offers = [each.offer for each in (*self.offers, *calls) if each.offer is not None]
        return {
            offer.spec.name: essence(offer.spec.name, offer.policy or ToolPolicy(), offer.source)
            for offer in offers
            if offer.side == "server" and offer.source != GUEST
        }

    @cached_property
    def json(self) -> msgspec.Raw:
        """The frame as JSON."""
        return _raw(self)


class _HasOffer(Protocol):
    @property
    def offer(self) -> Offer | None: ...


def _sources(offered: Sequence[_HasOffer]) -> dict[str, str]:
    offers = [each.offer for each in offered]
    return {offer.spec.name: offer.source for offer in offers if offer is not None and offer.side == "server"}


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """All that a loop is made from; `history` is what its model reads first.

    `offered` is what the frame was made of, where that was now: the frame alone says the same.
    """

    row: RunRow
    request: Request
    frame: RunFrame
    history: tuple[AnyItem, ...]
    offered: Offered | None = None

    def initial_history(self) -> tuple[list[AnyItem], CarriedCalls | None]:
        """Return what the model has read when the run begins, and the calls that come before its first model call."""
        carried = self.frame.carried
        return (list(self.history), None) if carried is None else carried.split_history(self.history)


def frame_of(
    offered: Offered,
    limits: Limits,
    carried: ResumedTurn | None = None,
    tainted: Mapping[str, str] | None = None,
    rejoined: tuple[str, ...] = (),
) -> RunFrame:
    """Freeze what a loop is made with."""
    if carried is None and not tainted and not rejoined:
        return _DEFAULT_FRAMES.of(offered).of(limits)
    return RunFrame(
        offers=_FRAMED.of(offered),
        choice=offered.choice,
        limits=limits,
        carried=carried,
        tainted={**(tainted or {})},
        rejoined=rejoined,
    )


def read_frame(entries: Sequence[Entry]) -> RunFrame | None:
    """Return the frame of a run; None for one that an older Treadle began.

    Raises: MsgspecError.
    """
    for entry in entries:
        if entry.kind == "frame" and entry.data is not None:
            return msgspec.json.decode(entry.data, type=RunFrame)
    return None


def make_loop(
    blueprint: Blueprint, ports: Ports, *, recorded: RecordedRun | None = None, wall_s: float | None = None
) -> RunLoop:
    """Make the loop of a run; `wall_s` is what is left of its time."""
    row, request, frame = blueprint.row, blueprint.request, blueprint.frame
    offered = blueprint.offered
    offers = _offers(frame.offers, request.tools) if offered is None else offered.offers
    specs = _specs(offers) if offered is None else _SPECS.of(offered)
    planner = Planner(row.model, specs, request.options, is_strict=request.strict_fidelity)
    head, carried = blueprint.initial_history()
    if request.instructions:
        head.insert(0, text_message("system", request.instructions))
    planner.add(head)
    turn = RunState(
        planner,
        offers,
        choice=frame.choice,
        limits=frame.limits,
        ids=ports.ids,
        max_tool_calls=request.max_tool_calls,
    )
    if frame.tainted:
        turn.add_tainted(frame.tainted)
    if carried is not None:
        turn.carry_over(carried)
    context = CallContext(run_id=row.id, session_id=row.session_id, key_id=row.key_id)
    return RunLoop(turn, ports, context, wall_s, frame.limits.final_answer_s, recorded)


def _framed(offered: Offered) -> tuple[FramedOffer, ...]:
    own = _client_offers(offered.own)
    named = offered.offers.items()
    return tuple([FramedOffer(name=name, offer=None if own.get(name) == offer else offer) for name, offer in named])


def _offers(framed: Sequence[FramedOffer], tools: Sequence[ToolSpec]) -> dict[str, Offer]:
    own = _client_offers(tools)
    return {each.name: each.offer or own[each.name] for each in framed}


def _client_offers(tools: Sequence[ToolSpec]) -> dict[str, Offer]:
    """Return the offers of a client's own tools."""
    return {spec.name: Offer(spec=spec, side="client") for spec in tools}


def _specs(offers: Mapping[str, Offer]) -> tuple[ToolSpec, ...]:
    """Return what the model sees."""
    return tuple([offer.spec for offer in offers.values()])


_FRAMED: Memo[Offered, tuple[FramedOffer, ...]] = Memo(_framed)
_SPECS: Memo[Offered, tuple[ToolSpec, ...]] = Memo(lambda offered: _specs(offered.offers))
"""What is made of offers: they are the same object for as long as the tools are the same."""


def open_run(
    blueprint: Blueprint, previous: RunRow | None, inputs: Sequence[Entry], notes: Sequence[Note], loop: RunLoop
) -> tuple[list[Entry], list[Numbered]]:
    """Write down how the run begins: that it does, its input, its frame, what was noted, its first plan.

    Return the entries to make durable, and the events they are.
    """
    row = blueprint.row
    started = RunStarted(
        run_id=row.id,
        response_id=row.response_id,
        model=row.model,
        created_at=row.created_at,
        previous_response_id=previous.response_id if previous else None,
    )
    at = row.created_at
    events = [Numbered(event=started, seq=1)]
    entries = [
        Entry(kind="status", content="running", data=_raw(started), at=at),
        *inputs,
        Entry(kind="frame", data=blueprint.frame.json, at=at),
    ]
    for note in notes:
        entries.append(Entry(kind="note", content=note.message, data=_raw(note), at=at))
        events.append(Numbered(event=Noted(note=note), seq=len(entries)))
    for event, entry in loop.begin():
        assert entry is not None, "a run begins with a plan, or with what was decided"
        entries.append(entry)
        if event is not None:
            events.append(Numbered(event=event, seq=len(entries)))
    return entries, events


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _default_frames(offered: Offered) -> Memo[Limits, RunFrame]:
    """Return the frames of runs that are offered the same and bring nothing of their own, by their limits."""
    return Memo(lambda limits: RunFrame(offers=_FRAMED.of(offered), choice=offered.choice, limits=limits), 8)


_DEFAULT_FRAMES: Memo[Offered, Memo[Limits, RunFrame]] = Memo(_default_frames)
