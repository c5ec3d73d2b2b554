"""Writes the answer of a run as Responses events and as the whole response object, from one state.

The response has one lifecycle however many rounds the run has: created, in_progress, its items, and exactly one
terminal event. A run that was cancelled ends in `response.incomplete` with status `cancelled`: the API has that
status but no event of that name, and `response.failed` would make clients try again. An `error` event stands before it,
for clients that take an incomplete response without a reason for an answer (AI SDK's provider, 2026-11-19).
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
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
from treadle.core.ids import IdSource
from treadle.core.request import Request
from treadle.core.run_endings import CANCELLED, failure_of
from treadle.protocols.error_envelopes import error_text
from treadle.protocols.item_lanes import Delta
from treadle.protocols.responses.client_events import ErrorEvent, EventOutput, LifecycleEvent
from treadle.protocols.responses.client_item_order import Lanes
from treadle.protocols.responses.client_part_writers import OpenPart
from treadle.protocols.responses.client_response_object import ResponseObject, ended, started_response
from treadle.protocols.responses.content_parts import PROTOCOL
from treadle.protocols.translation.hosted_call_translation import HostedCallTranslation

_TERMINALS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
    "cancelled": "response.incomplete",
}

_TRANSLATED = frozenset({ItemAdded, ItemDone, RunEnded})


class Encoder:
    """Turns the events of one run into SSE frames; `extended` adds S2's own events beside the official ones."""

    def __init__(self, request: Request, ids: IdSource, *, extended: bool = False) -> None:
        self._request = request
        self._out = EventOutput(
            streams=request.surface.stream,
            extended=extended or request.surface.extended_events,
        )
        self._hosted = HostedCallTranslation(PROTOCOL)
        self._lanes = Lanes(self._out, ids, request.tools)
        self._text: OpenPart | None = None
        self._response: ResponseObject | None = None
        self._questions: list[ApprovalRequested] = []
        self._is_over = False

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames for an event; none when the request does not stream."""
        if type(event) is TextDelta:
            frames = None if self._text is None else self._text.grow(event)
            if frames is not None:
                return frames
            self._text = self._lanes.grow(event)
        else:
            self._text = None
            for shown in self._hosted.feed(event) if type(event) in _TRANSLATED else (event,):
                read = self._readers.get(type(shown))
                if read is not None:
                    read(self, shown)
        frames, self._out.frames = self._out.frames, []
        return frames

    def body(self) -> bytes:
        """Return the response object as it is now, with the items that are whole; after the end, all of it."""
        if self._is_over:
            return msgspec.json.encode(self._current())
        self._lanes.settle()
        return msgspec.json.encode(msgspec.structs.replace(self._current(), output=self._lanes.done))

    @property
    def number(self) -> int:
        """Return the number of the next event."""
        return self._out.number

    def leap(self, step: int) -> None:
        """Raise the number of the next event: after a crash a client may have seen more than is known here."""
        self._out.number += step

    def hold(self, number: int) -> None:
        """Give all further events that number: they do not belong to the run."""
        self._out.number = number
        self._out.is_held = True

    def _grow(self, event: Delta) -> None:
        self._lanes.grow(event)

    def _write(self, event: ItemAdded | ItemDone | ToolStarted | ToolFinished) -> None:
        self._lanes.feed(event)

    def _ask(self, event: ApprovalRequested) -> None:
        self._questions.append(event)
        if event.is_deferred:
            self._lanes.leave(event.index)

    def _approve(self, event: ApprovalDecided) -> None:
        self._lanes.approve(event)

    def _settle(self, _: RoundStarted) -> None:
        self._lanes.settle()

    def _break(self, _: RoundBroken) -> None:
        self._lanes.end(is_cut=False)

    def _start(self, event: RunStarted) -> None:
        self._response = started_response(self._request, event)
        if self._out.streams:
            written = msgspec.Raw(msgspec.json.encode(self._response))
            self._announce("response.created", written)
            self._announce("response.in_progress", written)

    def _end(self, event: RunEnded) -> None:
        assert not self._is_over, "a run ends once"
        self._is_over = True
        if event.status == "requires_action":
            # Approval requests come last, and only those that the run left open.
            for question in self._questions:
                self._lanes.feed(question)
        self._lanes.end(is_cut=event.status == "incomplete")
        self._response = ended(self._current(), event, self._lanes.done)
        if self._out.streams:
            if self._response.status == "cancelled":
                self._report(failure_of(event) or CANCELLED)
            self._announce(_TERMINALS[self._response.status], self._response)
        if self._out.streams and self._out.extended:
            self._announce("response.done", self._response)
            self._out.end()

    def _keep_alive(self, _: KeptAlive) -> None:
        """Repeat the response under the last number, so that a replayed stream has the same numbers."""
        number = max(0, self._out.number - 1)
        event = LifecycleEvent(type="response.in_progress", sequence_number=number, response=self._current())
        if self._out.streams:
            self._out.send_again(event)

    _readers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ArgumentsDelta: _grow,
        ReasoningDelta: _grow,
        RefusalDelta: _grow,
        ItemAdded: _write,
        ItemDone: _write,
        ToolStarted: _write,
        ToolFinished: _write,
        ApprovalRequested: _ask,
        ApprovalDecided: _approve,
        RunStarted: _start,
        RoundStarted: _settle,
        RoundBroken: _break,
        KeptAlive: _keep_alive,
        RunEnded: _end,
    }
    """The method for each kind of event; notes are not shown."""

    def _announce(self, kind: str, response: ResponseObject | msgspec.Raw) -> None:
        self._out.send(LifecycleEvent(type=kind, sequence_number=self._out.number, response=response))

    def _report(self, error: ErrorInfo) -> None:
        event = ErrorEvent(
            type="error",
            sequence_number=self._out.number,
            code=error.code,
            message=error_text(error),
            param=error.param,
        )
        self._out.send(event)

    def _current(self) -> ResponseObject:
        assert self._response is not None, "a run starts before anything else happens in it"
        return self._response
