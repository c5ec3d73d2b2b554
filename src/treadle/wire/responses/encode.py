"""Writing the answer of a run as Responses events, and as the whole response object, from one state.

The response has one lifecycle however many rounds the run has: created, in_progress, its items, and exactly one
terminal event. A run that was cancelled ends in `response.incomplete` with status `cancelled`: the API has that
status but no event of that name, and `response.failed` would make clients try again.
"""

from typing import assert_never

import msgspec

from treadle.canon.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.canon.ids import IdSource
from treadle.canon.request import Request
from treadle.wire.carry.retell import Retelling
from treadle.wire.responses.content import PROTOCOL
from treadle.wire.responses.events import LifecycleEvent, Outlet
from treadle.wire.responses.lanes import Lanes
from treadle.wire.responses.response import ResponseObject, begun, ended

_TERMINALS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
    "cancelled": "response.incomplete",
}


class Encoder:
    """Turns the events of one run into SSE frames; `extended` adds S2's own events beside the official ones."""

    def __init__(self, request: Request, ids: IdSource, *, extended: bool = False) -> None:
        self._request = request
        self._out = Outlet(
            streams=request.surface.stream,
            extended=extended or request.surface.extended_events,
        )
        self._retelling = Retelling(PROTOCOL)
        self._lanes = Lanes(self._out, ids, request.tools)
        self._response: ResponseObject | None = None
        self._questions: list[ApprovalRequested] = []
        self._is_over = False

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames for an event; none when the request does not stream."""
        if isinstance(event, TextDelta):
            self._lanes.feed(event)
        else:
            for told in self._retelling.feed(event):
                self._read(told)
        return self._out.take()

    def body(self) -> bytes:
        """Return the response object as it is now, with the items that are whole; after the end, all of it."""
        if self._is_over:
            return msgspec.json.encode(self._current())
        self._lanes.settle()
        return msgspec.json.encode(msgspec.structs.replace(self._current(), output=self._lanes.done))

    def renumber(self, number: int) -> None:
        """Give the next event that number: after a break the client may have seen more than is known here."""
        self._out.renumber(number)

    def _read(self, event: RunEvent) -> None:
        match event:
            case TextDelta() | ArgumentsDelta() | ReasoningDelta() | RefusalDelta() | ItemAdded() | ItemDone():
                self._lanes.feed(event)
            case ToolStarted() | ToolFinished():
                self._lanes.feed(event)
            case ApprovalRequested():
                self._questions.append(event)
            case ApprovalDecided():
                self._lanes.approve(event)
            case RunStarted():
                self._start(event)
            case RoundStarted():
                self._lanes.settle()
            case KeptAlive():
                self._keep_alive()
            case RunEnded():
                self._end(event)
            case RoundBroken():
                self._lanes.end(is_cut=False)
            case Noted():
                pass
            case _:
                assert_never(event)

    def _start(self, event: RunStarted) -> None:
        self._response = begun(self._request, event)
        self._announce("response.created")
        self._announce("response.in_progress")

    def _end(self, event: RunEnded) -> None:
        assert not self._is_over, "a run ends once"
        self._is_over = True
        if event.status == "requires_action":
            # What the client is asked stands last, and is asked only once the run has left it open.
            for question in self._questions:
                self._lanes.feed(question)
        self._lanes.end(is_cut=event.status == "incomplete")
        self._response = ended(self._current(), event, self._lanes.done)
        self._announce(_TERMINALS[self._response.status])
        if self._out.extended:
            self._announce("response.done")
            self._out.end()

    def _keep_alive(self) -> None:
        """Say once more what the client knows, under the last number: a stream told again has the same numbers."""
        number = self._out.last
        self._out.send(LifecycleEvent(type="response.in_progress", sequence_number=number, response=self._current()))

    def _announce(self, kind: str) -> None:
        self._out.send(
            LifecycleEvent(type=kind, sequence_number=self._out.number(), response=self._current()),
        )

    def _current(self) -> ResponseObject:
        assert self._response is not None, "a run starts before anything else happens in it"
        return self._response
