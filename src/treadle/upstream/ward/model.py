"""A model with a guard before it: asked again where that may help, elsewhere where it may not, and left alone if sick.

All of it happens before the first event: once an answer has begun, what comes of it is told as it is.
"""

from collections.abc import Sequence

import msgspec

from treadle.canon.errors import CROWDED, ErrorInfo, UpstreamError
from treadle.canon.events import Batches, Failed, Finished, ModelEvent, Noted
from treadle.canon.plan import Plan
from treadle.canon.request import Note
from treadle.telemetry import ModelCall, model_call
from treadle.upstream.model import UpstreamModel
from treadle.upstream.ward.breaker import Permit
from treadle.upstream.ward.retry import goes_elsewhere, is_sickness, pause_s
from treadle.upstream.ward.state import Ward


class Bed(msgspec.Struct, frozen=True):
    """A model, and the ward of its endpoint."""

    model: UpstreamModel
    ward: Ward


class GuardedModel:
    """The first of some models, with the others to fall back on. Fits the engine's port."""

    def __init__(self, beds: Sequence[Bed]) -> None:
        self._beds = tuple(beds)
        self.first = self._beds[0].model

    def stream(self, plan: Plan, run_id: str) -> "Guarded":
        """Make the model call, wherever it is answered.

        Raises: UpstreamError, before the first batch only; UnsupportedFeature.
        """
        return Guarded(self._beds, plan, run_id)


class Guarded:
    """The events of one model call, wherever it is answered. Fits `Batches`."""

    __slots__ = ("_beds", "_is_over", "_plan", "_run_id", "_visit")

    def __init__(self, beds: tuple[Bed, ...], plan: Plan, run_id: str) -> None:
        self._beds = beds
        self._plan = plan
        self._run_id = run_id
        self._visit: Visit | None = None
        self._is_over = False

    def __aiter__(self) -> "Guarded":
        """Return itself."""
        return self

    async def __anext__(self) -> list[ModelEvent]:
        """Return the next batch.

        Raises: UpstreamError, before the first batch only.
        """
        visit = self._visit
        if visit is None:
            if self._is_over:
                raise StopAsyncIteration
            return await self._begin()
        try:
            return visit.hear(await anext(visit.batches))
        except BaseException as error:
            self._is_over = True
            await self._leave(error)
            raise

    async def aclose(self) -> None:
        """Hear no more of it."""
        self._is_over = True
        await self._leave(None)

    async def _begin(self) -> list[ModelEvent]:
        """Return the first batch, and before it what had to be done to get it."""
        notes: list[ModelEvent] = []
        for number, bed in enumerate(self._beds, start=1):
            try:
                batch = await self._ask(bed, notes)
            except UpstreamError as error:
                if number == len(self._beds) or not goes_elsewhere(error):
                    raise
                bed.ward.repeat(elsewhere=True)
                notes.append(_note("fallback", f"{error.message}; {self._beds[number].ward.endpoint.name} was asked"))
            else:
                return [*notes, *batch] if notes else batch
        raise AssertionError("the last endpoint answers or refuses")

    async def _ask(self, bed: Bed, notes: list[ModelEvent]) -> list[ModelEvent]:
        """Ask one endpoint until it answers or it is no use. Raises: UpstreamError."""
        ward, attempt = bed.ward, 1
        ward.budget.earn()
        while True:
            try:
                return await self._enter(bed)
            except UpstreamError as error:
                wait_s = pause_s(error, attempt, ward.rules.retry, ward.dice)
                if wait_s is None or not ward.budget.spend():
                    raise
                notes.append(_note("retried", error.message))
                ward.repeat(elsewhere=False)
                await ward.clock.sleep(wait_s)
                attempt += 1

    async def _enter(self, bed: Bed) -> list[ModelEvent]:
        """Make one call with the endpoint's leave and return its first batch. Raises: UpstreamError."""
        ward = bed.ward
        if ward.breaker.is_shut(ward.clock.monotonic()):
            # At once, for the places of a sick endpoint are taken by those who wait for it.
            raise ward.closed_for()
        await ward.take_place()
        permit = ward.breaker.take(ward.clock.monotonic())
        if permit is None:
            ward.leave_place()
            raise ward.closed_for()
        visit = self._visit = Visit(ward, permit, _seen(bed, self._plan), bed.model.stream(self._plan, self._run_id))
        try:
            return visit.hear(await anext(visit.batches))
        except BaseException as error:
            await self._leave(error)
            raise

    async def _leave(self, error: BaseException | None) -> None:
        """End the call that is under way, if one is."""
        visit, self._visit = self._visit, None
        if visit is not None:
            await visit.end(error)


class Visit:
    """A call that is under way, with the endpoint's leave; its ward is told what came of it."""

    __slots__ = ("_call", "_outcome", "_permit", "_said", "_stream", "_ward", "batches")

    def __init__(self, ward: Ward, permit: Permit, call: ModelCall, stream: Batches) -> None:
        self._ward = ward
        self._permit = permit
        self._call = call
        self._stream = stream
        self.batches = aiter(stream)
        self._outcome, self._said = "left", ""

    def hear(self, batch: list[ModelEvent]) -> list[ModelEvent]:
        """Take note of what a batch says of the endpoint, and return it."""
        last = batch[-1]
        if type(last) is Finished:
            self._outcome = "ok"
            self._call.usage, self._call.stop = last.usage, last.stop
        elif type(last) is Failed:
            self._outcome, self._said = _outcome_of(last.error)
        if self._permit.is_trial and self._outcome != "failed":
            self._permit = self._ward.breaker.begin(self._permit, self._ward.clock.monotonic())
        return batch

    async def end(self, error: BaseException | None) -> None:
        """Close the call, and give back what it had."""
        ward = self._ward
        if isinstance(error, UpstreamError) and error.info.code != CROWDED:
            self._outcome, self._said = ("failed", error.message) if is_sickness(error) else ("refused", "")
        try:
            await self._stream.aclose()
        finally:
            now = self._call.ended_at = ward.clock.monotonic()
            ward.count(self._outcome, self._said)
            ward.breaker.give_back(self._permit, now, ok=_GOOD.get(self._outcome))
            ward.leave_place()


def _seen(bed: Bed, plan: Plan) -> ModelCall:
    """Let whoever watches this run know what it waits for."""
    endpoint = bed.model.endpoint
    call = ModelCall(
        upstream=endpoint.name, protocol=endpoint.protocol, host=endpoint.host, model=bed.model.name or plan.model
    )
    model_call.set(call)
    return call


_GOOD = {"ok": True, "refused": True, "failed": False}
"""What an outcome says of an endpoint: one that refuses a request is well; a call that was left says nothing."""


def _outcome_of(error: ErrorInfo) -> tuple[str, str]:
    """Tell how a call went that failed in the middle of its answer."""
    return ("failed", error.message) if error.status >= 500 else ("refused", "")


def _note(code: str, message: str) -> Noted:
    return Noted(note=Note(code=f"upstream_{code}", action="repaired", message=message))
