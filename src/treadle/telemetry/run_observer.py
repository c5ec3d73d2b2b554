"""Turns the events of a run into metrics, log lines and spans.

It records names, sizes and times, never arguments or results. Deltas, the most frequent events, cost one lookup.
"""

import logging
from collections.abc import Callable
from typing import ClassVar, Protocol

import msgspec

from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ItemAdded,
    ItemDone,
    Noted,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import CallItem
from treadle.core.shared_ports import Clock
from treadle.telemetry.log_context import ModelCall, model_call, upstream_request
from treadle.telemetry.log_lines import log_line
from treadle.telemetry.metrics import Metrics

log = logging.getLogger("treadle.runs")

_LOCAL = "local"
"""The upstream label of a model in this process."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a run, for its numbers, log lines and spans."""

    run_id: str
    response_id: str
    conversation_id: str
    protocol: str
    model: str


class RunSpansPort(Protocol):
    """The spans of one run. Times are wall clock times."""

    def call_began(self, event: RoundStarted, at: float) -> None:
        """A model call started."""
        ...

    def call_ended(self, at: float, call: ModelCall | None, *, first_s: float | None, error: str) -> None:
        """The model call ended: `first_s` is the time to its first event, `error` what it failed with."""
        ...

    def tool_began(self, event: ToolStarted, at: float) -> None:
        """A tool started."""
        ...

    def tool_ended(self, event: ToolFinished, at: float) -> None:
        """A tool call has its result."""
        ...

    def approval_asked(self, event: ApprovalRequested, at: float) -> None:
        """A person was asked for approval."""
        ...

    def approval_decided(self, event: ApprovalDecided, at: float) -> None:
        """The person decided."""
        ...

    def run_ended(self, event: RunEnded | None, at: float) -> None:
        """The run ended; None if it continues in another process."""
        ...


class GuestSpanPort(Protocol):
    """The span of one guest's session."""

    @property
    def parent(self) -> str:
        """The `traceparent` that is the parent of the guest's runs."""
        ...

    def end(self, code: str, cpu_s: float) -> None:
        """End it by its stop code or `ok`."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def run(self, about: About, at: float) -> RunSpansPort:
        """Start the spans of a run."""
        ...

    def guest(self, name: str) -> GuestSpanPort:
        """Start the span of a guest's session."""
        ...


class RunObserver:
    """Observes one run while it is active in this process."""

    _spans: RunSpansPort | None = None
    _call_started_at: float | None = None
    _first_s: float | None = None
    _approvals_asked_at: dict[str, float] | None = None
    round = 0

    def __init__(self, about: About, metrics: Metrics, clock: Clock, tracer: Tracer | None = None) -> None:
        self._about = about
        self._metrics = metrics
        self._clock = clock
        self._tracer = tracer
        self._started_at = clock.monotonic()

    def observe(self, event: RunEvent) -> None:
        """Handle one event."""
        handler = self._handlers.get(type(event))
        if self._tracer is not None and self._spans is None and (handler is not None or type(event) is RunStarted):
            self._spans = self._tracer.run(self._about, self._clock.now())
        if handler is not None:
            handler(self, event)

    def close(self) -> None:
        """Stop observing a run that did not end here."""
        if self._spans is not None:
            self._spans.run_ended(None, self._clock.now())
            self._spans = None

    def _round_started(self, event: RoundStarted) -> None:
        if self._call_started_at is not None:
            self._end_call()
        self._metrics.rounds.counts[()] += 1
        self.round = event.round
        self._call_started_at, self._first_s = self._clock.monotonic(), None
        model_call.set(None)
        if self._spans is not None:
            self._spans.call_began(event, self._clock.now())
        if log.isEnabledFor(logging.DEBUG):
            fields = {"run_id": self._about.run_id, "iteration": event.round, "plan": event.fingerprint}
            log.debug("round", extra=fields)

    def _item_added(self, event: ItemAdded) -> None:
        """Measure the time to the first item of an answer; log every call."""
        if type(event.item) is CallItem and log.isEnabledFor(logging.DEBUG):
            log.debug("call started", extra=self._call(event.item))
        if self._call_started_at is None or self._first_s is not None:
            return
        self._first_s = self._clock.monotonic() - self._call_started_at
        call = model_call.get()
        self._metrics.first_s.times[(_LOCAL if call is None else call.upstream,)].add(self._first_s)

    def _item_done(self, event: ItemDone) -> None:
        call = event.item
        if type(call) is CallItem and log.isEnabledFor(logging.DEBUG):
            size = len(call.arguments.encode("utf-8", "surrogatepass"))
            log.debug("call complete", extra={**self._call(call), "argument_bytes": size})

    def _call(self, call: CallItem) -> dict[str, object]:
        run_id, name = self._about.run_id, call.name
        return {"run_id": run_id, "tool_name": name, "tool_call_id": call.call_id, "side": call.side}

    def _end_call(self, error: str = "") -> None:
        """Record the end of a model call. No event marks it, so every event that can only follow it calls this."""
        if self._call_started_at is None:
            return
        call = model_call.get()
        ended = call.ended_at if call is not None and call.ended_at else self._clock.monotonic()
        upstream = _LOCAL if call is None else call.upstream
        self._metrics.call_s.times[(upstream,)].add(max(0.0, ended - self._call_started_at))
        if self._spans is not None:
            failed = error if call is None or not call.stop else ""
            at = self._clock.now() - (self._clock.monotonic() - ended)
            self._spans.call_ended(at, call, first_s=self._first_s, error=failed)
        self._call_started_at = None

    def _tool_started(self, event: ToolStarted) -> None:
        if self._call_started_at is not None:
            self._end_call()
        if self._spans is not None:
            self._spans.tool_began(event, self._clock.now())

    def _tool_finished(self, event: ToolFinished) -> None:
        if self._call_started_at is not None:
            self._end_call()
        self._metrics.tool_finished(event)
        if self._spans is not None:
            self._spans.tool_ended(event, self._clock.now())
        if log.isEnabledFor(logging.INFO):
            self._log_tool(event)

    def _log_tool(self, event: ToolFinished) -> None:
        fields: dict[str, object] = {
            "run_id": self._about.run_id,
            "iteration": self.round,
            "upstream_request_id": upstream_request.get(),
            "tool_name": event.call.name,
            "tool_call_id": event.call.call_id,
            "rc": event.result.rc,
            "duration_s": round(event.duration_s, 6),
            "output_bytes": event.output_bytes,
        }
        log_line(log, logging.INFO, fields, "tool %s: %s", event.call.name, event.result.rc)

    def _approval_requested(self, event: ApprovalRequested) -> None:
        self._end_call()
        self._metrics.asked.inc()
        if self._approvals_asked_at is None:
            self._approvals_asked_at = {}
        self._approvals_asked_at[event.approval_id] = self._clock.monotonic()
        if self._spans is not None:
            self._spans.approval_asked(event, self._clock.now())
        log.info("approval of %s asked for", event.call.name, extra=self._approval(event))

    def _approval_decided(self, event: ApprovalDecided) -> None:
        self._end_call()
        self._metrics.decided.inc(event.status)
        asked_at = None if self._approvals_asked_at is None else self._approvals_asked_at.pop(event.approval_id, None)
        if asked_at is not None:
            self._metrics.wait_s.observe(self._clock.monotonic() - asked_at)
        if self._spans is not None:
            self._spans.approval_decided(event, self._clock.now())
        log.info("approval of %s: %s", event.call.name, event.status, extra=self._approval(event))

    def _approval(self, event: ApprovalRequested | ApprovalDecided) -> dict[str, str]:
        return {"run_id": self._about.run_id, "tool_name": event.call.name, "approval_id": event.approval_id}

    def _noted(self, event: Noted) -> None:
        self._metrics.noted(event.note)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", event.note.message, extra={"run_id": self._about.run_id, "note": event.note.code})

    def _run_ended(self, event: RunEnded) -> None:
        error = event.error
        self._end_call("" if error is None else error.code)
        self._metrics.run_ended(event, self._about.protocol)
        lasted_s = self._clock.monotonic() - self._started_at
        self._metrics.run_s.times[()].add(lasted_s)
        if self._spans is not None:
            self._spans.run_ended(event, self._clock.now())
            self._spans = None
        if log.isEnabledFor(logging.INFO if error is None else logging.WARNING):
            self._log_end(event, lasted_s)

    def _log_end(self, event: RunEnded, lasted_s: float) -> None:
        about, error = self._about, event.error
        fields: dict[str, object] = {
            "run_id": about.run_id,
            "model": about.model,
            "protocol": about.protocol,
            "status": event.status,
            "limit": event.limit,
            "iterations": event.rounds,
            "tool_calls": event.calls,
            "upstream_request_id": upstream_request.get(),
            "duration_s": round(lasted_s, 6),
        }
        if event.usage is not None:
            fields |= {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens}
        if error is None:
            log_line(log, logging.INFO, fields, "run %s", event.status)
        else:
            log.warning("run %s: %s: %s", event.status, error.code, error.message, extra={**fields, "code": error.code})

    def _round_broken(self, event: RoundBroken) -> None:
        self._end_call("interrupted")

    _handlers: ClassVar[dict[type, Callable[..., None]]] = {
        RoundStarted: _round_started,
        RoundBroken: _round_broken,
        ItemAdded: _item_added,
        ItemDone: _item_done,
        Noted: _noted,
        ToolStarted: _tool_started,
        ToolFinished: _tool_finished,
        ApprovalRequested: _approval_requested,
        ApprovalDecided: _approval_decided,
        RunEnded: _run_ended,
    }
    """The handlers by type of event; other events are ignored."""
