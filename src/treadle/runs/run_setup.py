"""Builds the loop of a run, and the entries that become durable together before anything else happens.

The `frame` entry stores everything that the loop needs besides the request (the offered tools with their policies, and
the limits), so that another process can build the same loop again.
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
    """An offer by name; a client's own tool is in the request and is not repeated."""

    name: str
    offer: Offer | None = None


class RunFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What a run's loop was built from besides its request: the data of a `frame` entry.

    `carried` are calls of an earlier run that it starts with. `tainted` are tools that it does not offer, with their
    sources, whose untrusted output is in the conversation. `rejoined` are runs that are stored for this one alone.
    """

    offers: tuple[FramedOffer, ...]
    choice: ToolChoice
    limits: Limits
    carried: ResumedTurn | None = None
    tainted: dict[str, str] = {}
    rejoined: tuple[str, ...] = ()

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The sources of the server tools that the run may call, by name."""
        return {**_sources(self.offers), **_sources(self.carried.calls if self.carried is not None else ())}

    @cached_property
    def tools(self) -> dict[str, str]:
        """What another process must have for each server tool that the run may call, by name; without guests' tools."""
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
    """Everything that a loop is built from; `history` is the conversation before the run's own items.

    `offered` saves time when the frame was just made from it; the frame alone is enough.
    """

    row: RunRow
    request: Request
    frame: RunFrame
    history: tuple[AnyItem, ...]
    offered: Offered | None = None

    def initial_history(self) -> tuple[list[AnyItem], CarriedCalls | None]:
        """Return the items before the run's first step, and the calls that come before its first model call."""
        carried = self.frame.carried
        return (list(self.history), None) if carried is None else carried.split_history(self.history)


def frame_of(
    offered: Offered,
    limits: Limits,
    carried: ResumedTurn | None = None,
    tainted: Mapping[str, str] | None = None,
    rejoined: tuple[str, ...] = (),
) -> RunFrame:
    """Return the frame of a loop. Most runs have nothing of their own, and share a cached one."""
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
    """Return the frame of a run; None for one that an older version started.

    Raises: MsgspecError.
    """
    for entry in entries:
        if entry.kind == "frame" and entry.data is not None:
            return msgspec.json.decode(entry.data, type=RunFrame)
    return None


def make_loop(
    blueprint: Blueprint, ports: Ports, *, recorded: RecordedRun | None = None, wall_s: float | None = None
) -> RunLoop:
    """Build the loop of a run; `wall_s` is its remaining time."""
    row, request, frame = blueprint.row, blueprint.request, blueprint.frame
    offered = blueprint.offered
    offers = _offers(frame.offers, request.tools) if offered is None else offered.offers
    specs = _specs(offers) if offered is None else _SPECS.of(offered)
    planner = Planner(row.model, specs, request.options, is_strict=request.strict_fidelity)
    head, carried = blueprint.initial_history()
    if request.instructions:
        head.insert(0, text_message("system", request.instructions))
    planner.add(head)
    state = RunState(
        planner,
        offers,
        choice=frame.choice,
        limits=frame.limits,
        ids=ports.ids,
        max_tool_calls=request.max_tool_calls,
    )
    if frame.tainted:
        state.add_tainted(frame.tainted)
    if carried is not None:
        state.carry_over(carried)
    context = CallContext(run_id=row.id, session_id=row.session_id, key_id=row.key_id)
    return RunLoop(state, ports, context, wall_s, frame.limits.final_answer_s, recorded)


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
"""Derived from offers, which are the same object as long as the tools do not change."""


def open_run(
    blueprint: Blueprint, previous: RunRow | None, inputs: Sequence[Entry], notes: Sequence[Note], loop: RunLoop
) -> tuple[list[Entry], list[Numbered]]:
    """Return the opening entries of a run (status, input, frame, notes, first steps), and their events."""
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
        assert entry is not None, "a run opens with a plan, decisions or approval requests"
        entries.append(entry)
        if event is not None:
            events.append(Numbered(event=event, seq=len(entries)))
    return entries, events


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _default_frames(offered: Offered) -> Memo[Limits, RunFrame]:
    """Return the shared frames of runs with these offers, by their limits."""
    return Memo(lambda limits: RunFrame(offers=_FRAMED.of(offered), choice=offered.choice, limits=limits), 8)


_DEFAULT_FRAMES: Memo[Offered, Memo[Limits, RunFrame]] = Memo(_default_frames)
