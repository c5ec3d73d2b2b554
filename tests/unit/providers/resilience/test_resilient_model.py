"""A guarded model: retries, fallbacks, places and the breaker, all before the first event."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec
import pytest

from treadle.core.errors import (
    CROWDED,
    BrokenStream,
    CircuitOpen,
    ErrorInfo,
    UpstreamError,
    UpstreamStatus,
    UpstreamTimeout,
)
from treadle.core.events import Failed, Finished, ModelEvent, Noted, TextDelta
from treadle.core.plan import Plan
from treadle.http.client_connection import BytesConsumer
from treadle.providers.provider_client import read_into
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.provider_model import StartedCall
from treadle.providers.resilience import (
    BreakerRules,
    EndpointCandidate,
    EndpointGuard,
    GuardedModel,
    GuardRules,
    RetryRules,
)

PLAN = Plan(model="m", items=())
TEXT = TextDelta(index=0, text="hello")
DONE = Finished(stop="done")
DOWN = UpstreamStatus("down", status=503)
RULES = GuardRules(retry=RetryRules(retries=2, backoff_s=1.0), breaker=BreakerRules(calls_min=2, open_s=10.0))


class Timer:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return 1_000.0 + self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Counted:
    """Counts what the wards say."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def upstream_asked(self, upstream: str, outcome: str) -> None:
        self.said.append((upstream, outcome))

    def upstream_retried(self, upstream: str, *, elsewhere: bool) -> None:
        self.said.append((upstream, "elsewhere" if elsewhere else "again"))


class Spoken:
    """An answer that is its own decoder: each byte stands for a batch, or for a failure of the network."""

    def __init__(self, batches: Sequence[list[ModelEvent] | UpstreamError], gate: asyncio.Event | None = None) -> None:
        self._left = list(batches)
        self._first = len(self._left)
        self._gate = gate

    async def read(self) -> bytes:
        if self._gate is not None and len(self._left) < self._first:
            await self._gate.wait()
        if not self._left:
            return b""
        if isinstance(coming := self._left[0], UpstreamError):
            raise coming
        return b"."

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        return read_into(self.read, take)

    def feed(self, data: bytes) -> list[ModelEvent]:
        batch = self._left.pop(0)
        assert isinstance(batch, list)
        return list(batch)

    def finish(self) -> list[ModelEvent]:
        return [Failed(error=BrokenStream("it just ended").info)]

    def failure(self, error: OSError) -> UpstreamError:
        raise AssertionError("the network is not asked") from error

    async def end(self) -> None:
        """Have nothing to wait for."""

    async def close(self) -> None:
        """Have nothing to give back."""


class Played:
    """A model whose calls go as told: an error to raise, or batches to yield; the last of them for ever."""

    def __init__(self, name: str, *calls: UpstreamError | list[list[ModelEvent]]) -> None:
        self.endpoint = Endpoint(name=name, base_url=f"https://{name}.example/v1")
        self.name = ""
        self._calls = list(calls)
        self.made = 0

    async def begin(self, plan: Plan, run_id: str) -> StartedCall:
        call = self._calls[min(self.made, len(self._calls) - 1)]
        self.made += 1
        if isinstance(call, UpstreamError):
            raise call
        answer = Spoken(call)
        return StartedCall(answer, answer)


class Hall:
    """Some played models with wards that share a clock and a meter."""

    def __init__(self, *models: Played, rules: GuardRules = RULES) -> None:
        self.timer, self.meter = Timer(), Counted()
        self.wards = [
            EndpointGuard(model.endpoint, rules, clock=self.timer, meter=self.meter, random=lambda: 1.0)
            for model in models
        ]
        self.model = GuardedModel([EndpointCandidate(*pair) for pair in zip(models, self.wards, strict=True)])  # type: ignore[arg-type]

    async def ask(self, fingerprint: str = "") -> list[ModelEvent]:
        """Make one call and return all its events."""
        plan = msgspec.structs.replace(PLAN, fingerprint=fingerprint)
        return [event async for batch in self.model.stream(plan, "run_1") for event in batch]


def notes(events: list[ModelEvent]) -> list[str]:
    """Return the codes of what is noted."""
    return [event.note.code for event in events if isinstance(event, Noted)]


async def test_a_call_refused_before_its_first_byte_is_made_again_with_pauses():
    """And the run knows that it was."""
    model = Played("a", DOWN, DOWN, [[TEXT], [DONE]])
    hall = Hall(model, rules=GuardRules(retry=RULES.retry, breaker=BreakerRules(calls_min=9)))
    events = await hall.ask()
    assert notes(events) == ["upstream_retried", "upstream_retried"]
    assert events[2:] == [TEXT, DONE]
    assert hall.timer.slept == [1.0, 2.0]
    assert hall.meter.said == [("a", "failed"), ("a", "again"), ("a", "failed"), ("a", "again"), ("a", "ok")]


async def test_the_last_refusal_is_what_the_client_hears():
    """Not the first, which may be long over."""
    model = Played("a", UpstreamError("reset"), DOWN, DOWN)
    with pytest.raises(UpstreamStatus, match="down"):
        await Hall(model, rules=GuardRules(breaker=BreakerRules(calls_min=9))).ask()
    assert model.made == 3


async def test_an_answer_that_has_begun_is_never_asked_for_again():
    """Neither there nor elsewhere: the client saw a part of it."""
    cut = Failed(error=BrokenStream("cut").info)
    model = Played("a", [[TEXT], [cut]])
    other = Played("b", [[TEXT], [DONE]])
    assert await Hall(model, other).ask() == [TEXT, cut]
    assert (model.made, other.made) == (1, 0)


async def test_a_refused_request_is_neither_repeated_nor_taken_elsewhere():
    """It would be refused there too."""
    model, other = Played("a", UpstreamStatus("bad", status=400)), Played("b", [[DONE]])
    with pytest.raises(UpstreamStatus, match="bad"):
        await Hall(model, other).ask()
    assert (model.made, other.made) == (1, 0)


async def test_the_next_upstream_is_asked_when_the_first_does_not_answer():
    """And the run names both."""
    model, other = Played("a", UpstreamTimeout("silent")), Played("b", [[TEXT], [DONE]])
    hall = Hall(model, other)
    events = await hall.ask()
    assert notes(events) == ["upstream_fallback"]
    assert events[1:] == [TEXT, DONE]
    assert hall.meter.said == [("a", "failed"), ("a", "elsewhere"), ("b", "ok")]


async def test_a_sick_upstream_is_left_alone_and_tried_once_after_the_pause():
    """The client is told why, and when to come back."""
    model = Played("a", DOWN, DOWN, DOWN, [[DONE]])
    hall = Hall(model, rules=GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker))
    for _ in range(2):
        with pytest.raises(UpstreamStatus):
            await hall.ask()
    with pytest.raises(CircuitOpen) as caught:
        await hall.ask()
    assert model.made == 2
    assert caught.value.info.status == 503
    assert caught.value.info.retry_after_s == 10.0
    assert "down" in caught.value.message
    hall.timer.time = 10.0
    with pytest.raises(UpstreamStatus):
        await hall.ask()
    hall.timer.time = 30.0
    assert await hall.ask() == [DONE]
    assert hall.wards[0].health().breaker == "closed"


async def test_others_are_let_through_as_soon_as_a_trial_is_answered():
    """While its answer still goes on. While it is left alone they get an error at once, although no place is free."""
    model = Played("a", DOWN, DOWN, [[TEXT], [DONE]])
    rules = GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker, streams_max=1, queue_s=0.01)
    hall = Hall(model, rules=rules)
    for _ in range(2):
        with pytest.raises(UpstreamStatus):
            await hall.ask()
    hall.timer.time = 10.0
    ward = hall.wards[0]
    assert ward.places is not None
    await ward.wait_for_place(ward.places)
    held = await ward.enter()
    hall.timer.time = 9.0
    with pytest.raises(CircuitOpen):
        await hall.ask()
    hall.timer.time = 10.0
    ward.report(held, 10.0, ok=None)
    ward.leave("left")
    trial = hall.model.stream(PLAN, "run_1")
    assert await anext(trial) == [TEXT]
    assert hall.wards[0].health().breaker == "closed"
    assert [batch async for batch in trial] == [[DONE]]
    assert await hall.ask() == [TEXT, DONE]


class Gated(Played):
    """A model whose calls after the first ones are answered when the gate opens."""

    def __init__(self, name: str, *calls: UpstreamError | list[list[ModelEvent]], free: int) -> None:
        super().__init__(name, *calls)
        self._free = free
        self.gate = asyncio.Event()
        self.is_asked = asyncio.Event()

    async def begin(self, plan: Plan, run_id: str) -> StartedCall:
        if self.made >= self._free and not self.gate.is_set():
            self.is_asked.set()
            await self.gate.wait()
        return await super().begin(plan, run_id)


async def until_waiting(hall: Hall, count: int) -> None:
    """Wait until so many calls wait for the trial."""
    for _ in range(1_000):
        if hall.wards[0].health().waiting >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError("the calls do not wait")


@pytest.mark.parametrize("is_well", [True, False], ids=["well", "still down"])
async def test_the_others_wait_for_the_trial_and_share_its_outcome(is_well: bool):
    """In the second after the pause nobody fails for having come together with the trial."""
    answers = [[[TEXT], [DONE]]] if is_well else [DOWN]
    model = Gated("a", DOWN, DOWN, *answers, free=2)
    hall = Hall(model, rules=GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker))
    for _ in range(2):
        with pytest.raises(UpstreamStatus):
            await hall.ask()
    hall.timer.time = 10.0
    calls = [asyncio.create_task(hall.ask()) for _ in range(5)]
    await model.is_asked.wait()
    await until_waiting(hall, 4)
    model.gate.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    if is_well:
        assert outcomes == [[TEXT, DONE]] * 5
    else:
        assert [type(each) for each in outcomes] == [UpstreamStatus, *[CircuitOpen] * 4]
    assert model.made == (7 if is_well else 3)
    assert hall.wards[0].health().waiting == 0


async def test_a_trial_that_its_client_leaves_is_followed_by_one_of_those_who_wait():
    """Else they would wait for nothing."""
    model = Gated("a", DOWN, DOWN, [[TEXT], [DONE]], free=2)
    hall = Hall(model, rules=GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker))
    for _ in range(2):
        with pytest.raises(UpstreamStatus):
            await hall.ask()
    hall.timer.time = 10.0
    trial = asyncio.create_task(hall.ask())
    await model.is_asked.wait()
    others = [asyncio.create_task(hall.ask()) for _ in range(2)]
    await until_waiting(hall, 2)
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    model.gate.set()
    assert await asyncio.gather(*others) == [[TEXT, DONE]] * 2


async def test_a_wait_for_a_trial_is_bounded_and_gives_its_place_back():
    """A trial may hang for as long as the endpoint is silent."""
    model = Gated("a", DOWN, DOWN, [[TEXT], [DONE]], free=2)
    rules = GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker, streams_max=2, queue_s=0.01)
    hall = Hall(model, rules=rules)
    for _ in range(2):
        with pytest.raises(UpstreamStatus):
            await hall.ask()
    hall.timer.time = 10.0
    trial = asyncio.create_task(hall.ask())
    await model.is_asked.wait()
    with pytest.raises(CircuitOpen):
        await hall.ask()
    model.gate.set()
    assert await trial == [TEXT, DONE]
    assert await asyncio.gather(hall.ask(), hall.ask()) == [[TEXT, DONE]] * 2


async def test_with_a_fallback_nobody_waits_for_a_trial():
    """The other endpoint answers at once."""
    model = Gated("a", DOWN, DOWN, [[TEXT], [DONE]], free=2)
    hall = Hall(
        model, Played("b", [[TEXT], [DONE]]), rules=GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker)
    )
    for _ in range(2):
        await hall.ask()
    hall.timer.time = 10.0
    trial = asyncio.create_task(hall.ask())
    await model.is_asked.wait()
    assert notes(await hall.ask()) == ["upstream_fallback"]
    model.gate.set()
    assert notes(await trial) == []


async def test_one_request_that_cannot_be_served_does_not_shut_out_the_others():
    """Some servers answer 500 to a request that they cannot serve; it counts once, however often it is asked again."""
    model = Played("a", UpstreamStatus("cannot parse", status=500))
    hall = Hall(model, rules=GuardRules(retry=RetryRules(retries=0), breaker=BreakerRules(calls_min=3)))
    for _ in range(9):
        with pytest.raises(UpstreamStatus):
            await hall.ask("same")
    assert hall.wards[0].health().breaker == "closed"
    for fingerprint in ("second", "third"):
        with pytest.raises(UpstreamStatus):
            await hall.ask(fingerprint)
    assert hall.wards[0].health().breaker == "open"
    hall.timer.time = 10.0
    with pytest.raises(UpstreamStatus):
        await hall.ask("same")
    assert hall.wards[0].health().breaker == "half_open", "a trial with a request that is known to fail says nothing"


REFUSED = UpstreamError("upstream 'a' cannot be reached: refused")


async def test_a_server_on_this_machine_is_asked_again_as_soon_as_it_is_back():
    """A refused connection is found out at once and costs nothing: there is no pause to wait for."""
    model = Played("a", *[REFUSED] * 5, [[TEXT], [DONE]])
    model.endpoint = Endpoint(name="a", base_url="http://127.0.0.1:8080/v1")
    hall = Hall(model, rules=GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker))
    for _ in range(5):
        with pytest.raises(UpstreamError, match="refused"):
            await hall.ask()
    assert await hall.ask() == [TEXT, DONE]
    assert hall.wards[0].health().breaker == "closed"


@pytest.mark.parametrize(
    ("base_url", "failure"),
    [("http://127.0.0.1:8080/v1", DOWN), ("https://a.example/v1", REFUSED)],
    ids=["here, and overloaded", "elsewhere, and refused"],
)
async def test_other_failures_are_followed_by_the_pause(base_url: str, failure: UpstreamError):
    """A server that answers with errors, and one that is far away, are left alone."""
    model = Played("a", failure)
    model.endpoint = Endpoint(name="a", base_url=base_url)
    hall = Hall(model, rules=GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker))
    for _ in range(2):
        with pytest.raises(UpstreamError):
            await hall.ask()
    with pytest.raises(CircuitOpen):
        await hall.ask()


async def test_a_model_that_raises_after_its_first_event_is_not_asked_again():
    """A client would hear the beginning twice; it hears what happened."""

    class Broken(Played):
        async def begin(self, plan: Plan, run_id: str) -> StartedCall:
            self.made += 1
            answer = Spoken([[TEXT], UpstreamError("reset")])
            return StartedCall(answer, answer)

    model, other = Broken("a"), Played("b", [[DONE]])
    hall = Hall(model, other)
    assert await hall.ask() == [TEXT, Failed(error=UpstreamError("reset").info)]
    assert (model.made, other.made) == (1, 0)
    assert hall.meter.said == [("a", "failed")]


async def test_an_answer_that_breaks_off_counts_against_the_upstream_and_one_that_was_left_does_not():
    """Also after the first event."""
    cut = Failed(error=ErrorInfo(code="upstream_broken_stream", message="cut", status=502))
    hall = Hall(Played("a", [[TEXT], [cut]]))
    for _ in range(2):
        await hall.ask()
    assert hall.wards[0].health().breaker == "open"
    left = Hall(Played("b", [[TEXT], [DONE]]))
    for _ in range(5):
        stream = left.model.stream(PLAN, "run_1")
        await anext(stream)
        await stream.aclose()
    assert left.meter.said == [("b", "left")] * 5
    assert left.wards[0].health().live == 0


async def test_the_budget_ends_retries_before_their_number_does():
    """Three calls and three repeats, not eighteen calls."""
    model = Played("a", DOWN)
    rules = GuardRules(retry=RetryRules(retries=5, share=0.1, spare=3.0), breaker=BreakerRules(calls_min=99))
    hall = Hall(model, rules=rules)
    for _ in range(3):
        with pytest.raises(UpstreamStatus):
            await hall.ask()
    assert model.made == 6


async def test_a_lack_of_connections_here_is_not_held_against_the_upstream():
    """It was not asked: that neither opens its breaker, nor closes it when such a call was the trial."""
    crowded = UpstreamTimeout("no connection", code=CROWDED)
    model = Played("a", crowded, crowded, crowded, DOWN, DOWN, crowded)
    hall = Hall(model, rules=GuardRules(retry=RetryRules(retries=0), breaker=RULES.breaker))
    for _ in range(3):
        with pytest.raises(UpstreamTimeout):
            await hall.ask()
    assert hall.wards[0].health().breaker == "closed"
    for _ in range(2):
        with pytest.raises(UpstreamStatus):
            await hall.ask()
    hall.timer.time = 10.0
    with pytest.raises(UpstreamTimeout):
        await hall.ask()
    assert hall.wards[0].health().breaker == "half_open"


async def test_who_finds_no_place_in_time_is_told_so():
    """And a place is free again when its call ends."""
    gate = asyncio.Event()

    class Slow(Played):
        async def begin(self, plan: Plan, run_id: str) -> StartedCall:
            answer = Spoken([[TEXT], [DONE]], gate)
            return StartedCall(answer, answer)

    hall = Hall(Slow("a"), rules=GuardRules(streams_max=1, queue_s=0.01))
    first = hall.model.stream(PLAN, "run_1")
    await anext(first)
    with pytest.raises(UpstreamTimeout, match="no place free"):
        await hall.ask()
    assert hall.wards[0].health().live == 1
    gate.set()
    assert [batch async for batch in first] == [[DONE]]
    assert await hall.ask() == [TEXT, DONE]


async def test_a_place_that_its_caller_no_longer_wants_goes_to_the_next():
    """A cancelled wait takes no place with it."""
    hall = Hall(Played("a", [[TEXT], [DONE]]), rules=GuardRules(streams_max=1, queue_s=5.0))
    first = hall.model.stream(PLAN, "run_1")
    await anext(first)
    waiting = asyncio.create_task(hall.ask())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await first.aclose()
    assert await hall.ask() == [TEXT, DONE]
