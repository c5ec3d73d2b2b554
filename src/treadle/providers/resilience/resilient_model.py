"""A model with retries, fallbacks and a circuit breaker.

They apply before the first event. Once a response has started, its events and errors are passed on unchanged; the
engine decides whether to retry a broken one, because it knows whether any event was published.
"""

from collections.abc import Sequence

import msgspec

from treadle.core.errors import CROWDED, BrokenStream, ErrorInfo, UpstreamError, UpstreamStatus, UpstreamTimeout
from treadle.core.events import Failed, Finished, ModelEvent, Noted
from treadle.core.plan import Plan
from treadle.core.request import Note
from treadle.providers.provider_model import AnswerStream, UpstreamModel
from treadle.providers.resilience.circuit_breaker import Permit
from treadle.providers.resilience.endpoint_guard_state import EndpointGuard
from treadle.providers.resilience.retry_backoff import is_endpoint_fault, may_fall_back, pause_of, pause_s
from treadle.telemetry import ModelCall, model_call


class EndpointCandidate(msgspec.Struct, frozen=True):
    """A model, and the guard of its endpoint."""

    model: UpstreamModel
    guard: EndpointGuard


class GuardedModel:
    """A model for the engine: the first candidate, with the others as fallbacks."""

    def __init__(self, candidates: Sequence[EndpointCandidate]) -> None:
        self._candidates = tuple(candidates)
        self.first = self._candidates[0].model

    def stream(self, plan: Plan, run_id: str) -> "Guarded":
        """Make the model call at the first candidate that responds.

        Raises: UpstreamError, before the first batch only; UnsupportedFeature.
        """
        return Guarded(self._candidates, plan, run_id)


class Guarded(AnswerStream):
    """The events of one model call, from whichever candidate responds."""

    _in_flight: "CallInFlight | None" = None
    _guard: EndpointGuard | None = None

    def __init__(self, candidates: tuple[EndpointCandidate, ...], plan: Plan, run_id: str) -> None:
        self._candidates = candidates
        self._plan = plan
        self._run_id = run_id

    async def _start(self) -> list[ModelEvent]:
        """Return the first batch, after notes about retries and fallbacks."""
        candidate = self._candidates[0]
        candidate.guard.budget.earn()
        try:
            return await self._call(candidate)
        except UpstreamError as error:
            failure = error
        return await self._start_again(failure)

    async def _start_again(self, failure: UpstreamError) -> list[ModelEvent]:
        """Retry at the same or the next candidate as long as that may help, and return the first batch."""
        notes: list[ModelEvent] = []
        left, attempt = list(self._candidates), 1
        while True:
            guard = left[0].guard
            if await _may_repeat(guard, failure, attempt, notes):
                attempt += 1
            elif len(left) == 1 or not may_fall_back(failure):
                raise failure
            else:
                guard.repeat(elsewhere=True)
                del left[0]
                notes.append(_note("fallback", f"{failure.message}; {left[0].guard.endpoint.name} was asked"))
                left[0].guard.budget.earn()
                attempt = 1
            try:
                return [*notes, *await self._call(left[0])]
            except UpstreamError as error:
                failure = error

    async def _call(self, candidate: EndpointCandidate) -> list[ModelEvent]:
        """Make one call with a permit of the endpoint and return its first batch. Raises: UpstreamError."""
        guard, model, plan = candidate.guard, candidate.model, self._plan
        self._guard = guard
        if guard.places is not None:
            await guard.wait_for_place(guard.places)
        # With a fallback left, use that instead of waiting for the outcome of this endpoint's trial.
        permit = await guard.enter(may_wait=candidate is self._candidates[-1])
        endpoint = model.endpoint
        call = ModelCall(
            upstream=endpoint.name, protocol=endpoint.protocol, host=endpoint.host, model=model.name or plan.model
        )
        # Telemetry attributes the call to this upstream even before it responds.
        model_call.set(call)
        in_flight = self._in_flight = CallInFlight(guard, permit, call)
        try:
            batch = await self._read_first(await model.begin(plan, self._run_id))
        except BaseException as error:
            await self._close_call(error)
            raise
        if permit.is_trial:
            in_flight.begin(self._last)
        return batch

    async def prepare_retry(self, attempt: int) -> Noted | None:
        """Wait before a retry of a call whose response broke; None if a retry is useless or not allowed."""
        last, guard = self._last, self._guard
        if type(last) is not Failed or guard is None:
            return None
        wait_s = pause_of(last.error, attempt, guard.rules.retry, guard.random)
        return await _wait(guard, wait_s, last.error.message)

    def _settle(self, error: BaseException | None) -> None:
        """Report the outcome of the running call to its guard, and release its permit and place."""
        in_flight, self._in_flight, last = self._in_flight, None, self._last
        if in_flight is None:
            return
        guard, call = in_flight.guard, in_flight.call
        outcome, message, request, can_probe = "left", "", "", False
        if type(last) is Finished:
            outcome = "ok"
            call.usage, call.stop = last.usage, last.stop
        elif type(last) is Failed:
            outcome, message = _outcome_of(last.error)
            can_probe = last.error.code == BrokenStream.code
        elif isinstance(error, UpstreamError) and error.info.code != CROWDED:
            outcome, message = ("failed", error.message) if is_endpoint_fault(error) else ("refused", "")
            request = self._plan.fingerprint if isinstance(error, UpstreamStatus) else ""
            can_probe = not isinstance(error, UpstreamStatus | UpstreamTimeout)
        now = call.ended_at = guard.clock.monotonic()
        guard.leave(outcome, message)
        guard.report(in_flight.permit, now, ok=_GOOD.get(outcome), request=request, can_probe=can_probe)


class CallInFlight(msgspec.Struct):
    """A running call with its permit; its outcome is reported to the guard."""

    guard: EndpointGuard
    permit: Permit
    call: ModelCall

    def begin(self, last: ModelEvent | None) -> None:
        """Report that a trial's response started, unless it was only a failure."""
        if type(last) is not Failed or _outcome_of(last.error)[0] != "failed":
            self.permit = self.guard.begin(self.permit)


async def _may_repeat(guard: EndpointGuard, error: UpstreamError, attempt: int, notes: list[ModelEvent]) -> bool:
    """Wait before a retry at the same endpoint; return whether there is one."""
    note = await _wait(guard, pause_s(error, attempt, guard.rules.retry, guard.random), error.message)
    if note is not None:
        notes.append(note)
    return note is not None


async def _wait(guard: EndpointGuard, wait_s: float | None, why: str) -> Noted | None:
    """Wait, if the retry budget allows, and return a note about the retry."""
    if wait_s is None or not guard.budget.spend():
        return None
    guard.repeat(elsewhere=False)
    await guard.clock.sleep(wait_s)
    return _note("retried", why)


_GOOD = {"ok": True, "refused": True, "failed": False}
"""Whether an outcome means a healthy endpoint: a refused request does; a call that was left is not counted."""


def _outcome_of(error: ErrorInfo) -> tuple[str, str]:
    """Return the outcome of a call that failed in the middle of its response, and its error text."""
    return ("failed", error.message) if error.status >= 500 else ("refused", "")


def _note(code: str, message: str) -> Noted:
    return Noted(note=Note(code=f"upstream_{code}", action="repaired", message=message))
