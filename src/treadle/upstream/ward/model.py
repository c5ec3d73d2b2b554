"""A model with a guard before it: asked again where that may help, elsewhere where it may not, and left alone if sick.

All of it happens before the first event: once an answer has begun, what comes of it is told as it is.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from treadle.canon.errors import CROWDED, ErrorInfo, UpstreamError
from treadle.canon.events import Failed, Finished, ModelEvent, Noted
from treadle.canon.plan import Plan
from treadle.canon.request import Note
from treadle.telemetry import ModelCall, model_call
from treadle.upstream.model import UpstreamModel
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

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Make the model call, wherever it is answered.

        Raises: UpstreamError, before the first batch only; UnsupportedFeature.
        """
        notes: list[ModelEvent] = []
        is_begun = False
        for number, bed in enumerate(self._beds, start=1):
            try:
                async with aclosing(self._ask(bed, plan, run_id, notes)) as batches:
                    async for batch in batches:
                        is_begun = True
                        yield [*notes, *batch] if notes else batch
                        notes = []
                return
            except UpstreamError as error:
                if is_begun or number == len(self._beds) or not goes_elsewhere(error):
                    raise
                bed.ward.repeat(elsewhere=True)
                notes.append(_note("fallback", f"{error.message}; {self._beds[number].ward.endpoint.name} was asked"))

    async def _ask(
        self, bed: Bed, plan: Plan, run_id: str, notes: list[ModelEvent]
    ) -> AsyncGenerator[list[ModelEvent], None]:
        """Ask one endpoint until it answers or it is no use. Raises: UpstreamError."""
        ward, attempt, is_begun = bed.ward, 1, False
        ward.budget.earn()
        while True:
            try:
                async with aclosing(_call(bed, plan, run_id)) as batches:
                    async for batch in batches:
                        is_begun = True
                        yield batch
                return
            except UpstreamError as error:
                wait_s = pause_s(error, attempt, ward.rules.retry, ward.dice)
                if is_begun or wait_s is None or not ward.budget.spend():
                    raise
                notes.append(_note("retried", error.message))
                ward.repeat(elsewhere=False)
                await ward.clock.sleep(wait_s)
                attempt += 1


async def _call(bed: Bed, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
    """Make one call with the endpoint's leave, and tell its ward what came of it. Raises: UpstreamError."""
    ward = bed.ward
    if ward.breaker.is_shut(ward.clock.monotonic()):
        # At once, for the places of a sick endpoint are taken by those who wait for it.
        raise ward.closed_for()
    async with ward.place():
        permit = ward.breaker.take(ward.clock.monotonic())
        if permit is None:
            raise ward.closed_for()
        outcome, said = "left", ""
        call = _seen(bed, plan)
        try:
            async with aclosing(bed.model.stream(plan, run_id)) as batches:
                async for batch in batches:
                    if isinstance(last := batch[-1], Finished):
                        outcome = "ok"
                        call.usage, call.stop = last.usage, last.stop
                    elif isinstance(last, Failed):
                        outcome, said = _outcome_of(last.error)
                    if permit.is_trial and outcome != "failed":
                        permit = ward.breaker.begin(permit, ward.clock.monotonic())
                    yield batch
        except UpstreamError as error:
            if error.info.code != CROWDED:
                outcome, said = ("failed", error.message) if is_sickness(error) else ("refused", "")
            raise
        finally:
            call.ended_at = ward.clock.monotonic()
            ward.count(outcome, said)
            ward.breaker.give_back(permit, ward.clock.monotonic(), ok=_GOOD.get(outcome))


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
