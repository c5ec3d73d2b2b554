"""A reply: when the status goes out, what a failure looks like, silence, and clients that go away."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest

from treadle.core import errors
from treadle.core import run_endings as endings
from treadle.core.errors import ErrorInfo, TreadleError, UpstreamStatus
from treadle.core.events import (
    ItemAdded,
    Numbered,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolStarted,
)
from treadle.core.items import CallItem, MessageItem
from treadle.core.request import Note
from treadle.core.run_endings import may_retry
from treadle.http.asgi import EDGE_IN_SCOPE, Receive, Scope, Send
from treadle.runs.event_feed import EventFeed
from treadle.runtime import SystemClock
from treadle.server.delivery.replay_encoders import AppendOnlyWriter, ResponseWriter, RunWriter
from treadle.server.delivery.subscribers import Subscribers
from treadle.server.http_exchange import JSON, OFF_LOOP_BYTES, Exchange, HttpError
from treadle.server.run_response import DeliveryOptions, RunResponse, read
from unit.server.visit import LOCAL, Silences, Visit

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
ROUND = RoundStarted(round=1, fingerprint="f")
CALL = CallItem(call_id="call_1", name="t", side="server")
MESSAGE = ItemAdded(index=0, item=MessageItem(role="assistant"))
COMPLETED = RunEnded(status="completed")
BUSY = ErrorInfo(code="busy", message="Busy.", status=429, retryable=True, retry_after_s=3.0)


class Handle:
    """A run whose events the test decides."""

    def __init__(self, *batches: list[RunEvent]) -> None:
        self.run_id = "run_1"
        self.response_id = "resp_1"
        self.has_run_tools = False
        self.cache = ""
        self.notes: tuple[Note, ...] = ()
        self.cancelled = asyncio.Event()
        self._batches: asyncio.Queue[list[RunEvent] | None] = asyncio.Queue()
        for batch in batches:
            self.encode(*batch)

    def encode(self, *events: RunEvent) -> None:
        self._batches.put_nowait(list(events))
        if events and isinstance(events[-1], RunEnded):
            self.stop()

    def stop(self) -> None:
        self._batches.put_nowait(None)

    async def events(self, after: int = 0, on_batch: Any = None) -> AsyncGenerator[list[Numbered], None]:
        while (batch := await self._batches.get()) is not None:
            self.has_run_tools = self.has_run_tools or any(isinstance(event, ToolStarted) for event in batch)
            yield [Numbered(event=event) for event in batch]

    def behind(self, taken: int) -> int:
        return 0

    async def cancel(self) -> None:
        self.cancelled.set()
        self.encode(RunEnded(status="cancelled"))

    async def wait(self) -> RunEnded:
        return RunEnded(status="failed", error=ErrorInfo(code="lost", message="Lost.", status=503))


class Encoder:
    """Writes an event's name as its frame; server calls are silent, as in Chat."""

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams
        self._names: list[str] = []

    def feed(self, event: RunEvent) -> list[bytes]:
        name = type(event).__name__
        self._names.append(name)
        silent = isinstance(event, RoundStarted | ToolStarted) or (
            isinstance(event, ItemAdded) and isinstance(event.item, CallItem)
        )
        return [] if silent or not self._streams else [f"<{name}>".encode()]

    def body(self) -> bytes:
        return ",".join(self._names).encode()


def _audience() -> Subscribers:
    return Subscribers(SystemClock())


class Edge:
    """Our own server, before a client that takes everything at once, or nothing."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self.takes = True

    def is_direct(self, receive: object, send: object) -> bool:
        return True

    def try_take_body_now(self) -> bytes | None:
        return None

    @property
    def is_flowing(self) -> bool:
        return self.takes and self._visit.status != 0

    def try_start_now(self, status: int, headers: object, data: bytes, *, is_whole: bool) -> bool:
        return False

    def write_now(self, data: bytes) -> None:
        self._visit.writes.append(data)


class Fed(Handle):
    """A run of this process, whose events are heard as it publishes them."""

    def __init__(self) -> None:
        self.feed = EventFeed()
        super().__init__()

    def encode(self, *events: RunEvent) -> None:
        self.feed.publish([Numbered(event=event) for event in events])

    def events(self, after: int = 0, on_batch: Any = None) -> Any:
        return self.feed.read(after, on_batch)

    async def until_read(self) -> None:
        for _ in range(1000):
            if self.feed.waiting:
                return
            await asyncio.sleep(0)
        raise AssertionError("nobody reads")


def _visit(
    handle: Handle,
    *,
    streams: bool,
    keep_alive_s: float = 60.0,
    manner: DeliveryOptions | None = None,
    telling: ResponseWriter | None = None,
) -> Visit:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, "req_1")
        await exchange.body(100, 1.0)
        told = telling or RunWriter(Encoder(streams=streams))
        carried = RunResponse(
            exchange, cast("Any", handle), told, manner or DeliveryOptions(streams=streams), _audience()
        )
        await carried.run(keep_alive_s)

    return Visit(app, "POST", "/v1/chat/completions", headers=[LOCAL])


async def test_the_stream_opens_with_the_first_event_of_the_answer() -> None:
    """Until then the status is open; what was held goes out with it, in one write."""
    handle = Handle([STARTED, ROUND])
    visit = _visit(handle, streams=True).begin()
    handle.encode(MESSAGE, TextDelta(index=0, text="hi"))
    await visit.until(b"<TextDelta>")
    assert (visit.status, visit.headers["x-treadle-run"]) == (200, "run_1")
    assert visit.writes == [b"<RunStarted><ItemAdded><TextDelta>"]
    handle.encode(COMPLETED)
    await visit.done()
    assert visit.writes[1:] == [b"<RunEnded>"]


@pytest.mark.parametrize("is_ours", [True, False])
async def test_what_a_request_said_is_not_kept_while_its_answer_lasts(is_ours: bool) -> None:
    """Thousands of streams may be open; where somebody stands between, what the request said is theirs too."""
    handle = Handle([STARTED, MESSAGE])
    visit = _visit(handle, streams=True)
    said = list(visit.scope["headers"])
    if is_ours:
        cast("Any", visit.scope)[EDGE_IN_SCOPE] = Edge(visit)
    visit.begin()
    await visit.until(b"<ItemAdded>")
    assert visit.scope["headers"] == ([] if is_ours else said)
    handle.encode(COMPLETED)
    await visit.done()
    assert visit.writes[-1] == b"<RunEnded>"


async def test_a_stream_that_flows_is_written_in_the_turn_of_the_run() -> None:
    """Nobody has to wake up for it; the end is, as what comes while the client takes nothing, carried by the reader."""
    handle = Fed()
    visit = _visit(handle, streams=True)
    edge = Edge(visit)
    cast("Any", visit.scope)[EDGE_IN_SCOPE] = edge
    visit.begin()
    handle.encode(STARTED, MESSAGE)
    await visit.until(b"<ItemAdded>")
    await handle.until_read()
    handle.encode(TextDelta(index=0, text="a"))
    assert visit.writes == [b"<RunStarted><ItemAdded>", b"<TextDelta>"]
    edge.takes = False
    handle.encode(TextDelta(index=0, text="b"))
    assert visit.writes[1:] == [b"<TextDelta>"]
    await visit.until_after(len(visit.body), b"<TextDelta>")
    handle.encode(COMPLETED)
    await visit.done()
    assert visit.body == b"<RunStarted><ItemAdded><TextDelta><TextDelta><RunEnded>"


@pytest.mark.parametrize("is_visible", [True, False])
async def test_an_answer_that_diverges_ends_at_once(is_visible: bool) -> None:
    """The run goes on, and with it what its reader would wait for: nothing that the client can use comes any more."""
    handle = Fed()
    manner = DeliveryOptions(is_resumed=is_visible)
    visit = _visit(handle, streams=True, manner=manner, telling=AppendOnlyWriter(Encoder(streams=True)))
    cast("Any", visit.scope)[EDGE_IN_SCOPE] = Edge(visit)
    visit.begin()
    handle.encode(STARTED, ROUND, *([MESSAGE, TextDelta(index=0, text="Hel")] if is_visible else []))
    await handle.until_read()
    if not is_visible:
        handle.encode(MESSAGE, TextDelta(index=0, text="Hel"))
        await visit.until(b"<TextDelta>")
        await handle.until_read()
    handle.encode(RoundBroken(round=1), ROUND, MESSAGE)
    handle.encode(TextDelta(index=0, text="Good day"))
    await visit.done()
    assert visit.body == b"<RunStarted><ItemAdded><TextDelta><RoundBroken><RunEnded>"
    assert (handle.feed.is_closed, handle.cancelled.is_set()) == (False, False)


async def test_what_is_written_in_the_turn_of_the_run_breaks_the_silence() -> None:
    """No empty event is sent between words that flow."""
    handle = Fed()
    visit = _visit(handle, streams=True)
    cast("Any", visit.scope)[EDGE_IN_SCOPE] = Edge(visit)
    visit.begin()
    handle.encode(STARTED, MESSAGE)
    await visit.until(b"<ItemAdded>")
    await handle.until_read()
    presence = cast("Any", handle.feed.waiting[0].on_batch).__self__._presence
    presence.written_at = -1.0
    handle.encode(TextDelta(index=0, text="a"))
    assert presence.written_at > 0
    handle.encode(COMPLETED)
    await visit.done()


async def test_what_happens_while_the_silence_is_broken_comes_after_that() -> None:
    """Also where the client takes more before it has been sent what broke the silence."""
    handle = Fed()
    visit = _visit(handle, streams=True)
    cast("Any", visit.scope)[EDGE_IN_SCOPE] = Edge(visit)
    visit.begin()
    handle.encode(STARTED, MESSAGE)
    await visit.until(b"<ItemAdded>")
    await handle.until_read()
    reply = cast("Any", handle.feed.waiting[0].on_batch).__self__
    async with visit._news:  # pyright: ignore[reportPrivateUsage]  # nothing can be sent meanwhile
        breaking = asyncio.create_task(reply._send_keep_alive())
        await asyncio.sleep(0)
        handle.encode(TextDelta(index=0, text="a"))
        assert visit.body == b"<RunStarted><ItemAdded>"
    await breaking
    await visit.until(b"<TextDelta>")
    await handle.until_read()
    handle.encode(TextDelta(index=0, text="b"))
    assert visit.body == b"<RunStarted><ItemAdded><KeptAlive><TextDelta><TextDelta>"
    handle.encode(COMPLETED)
    await visit.done()


async def test_an_answer_in_one_piece_wakes_its_reader_for_the_end_only() -> None:
    """What comes before is folded as it is published."""
    handle = Fed()
    visit = _visit(handle, streams=False).begin()
    await handle.until_read()
    reader = handle.feed.waiting[0]
    handle.encode(STARTED, MESSAGE)
    handle.encode(TextDelta(index=0, text="a"))
    assert handle.feed.waiting == [reader]
    handle.encode(COMPLETED)
    assert handle.feed.waiting == []
    await visit.done()
    assert visit.body == b"RunStarted,ItemAdded,TextDelta,RunEnded"


async def test_a_failure_before_the_answer_is_an_http_error() -> None:
    """The upstream's refusal keeps its meaning: status, envelope, and when to come back."""
    visit = await _visit(Handle([STARTED, ROUND], [RunEnded(status="failed", error=BUSY)]), streams=True).run()
    assert (visit.status, visit.headers["retry-after"], visit.headers["x-treadle-run"]) == (429, "3", "run_1")
    assert "x-should-retry" not in visit.headers
    assert visit.json()["error"]["code"] == "busy"


async def test_a_failure_in_the_answer_ends_the_stream() -> None:
    """Once something is visible the encoder tells the failure, also when all of it came in one batch."""
    failed = RunEnded(status="failed", error=BUSY)
    visit = await _visit(Handle([STARTED, MESSAGE, failed]), streams=True).run()
    assert (visit.status, visit.writes) == (200, [b"<RunStarted><ItemAdded><RunEnded>"])


async def test_a_failure_after_a_silent_tool_asks_not_to_be_retried() -> None:
    """Nothing was visible yet, so the status is still open; but the tool must not run twice."""
    events: list[RunEvent] = [STARTED, ItemAdded(index=0, item=CALL), ToolStarted(index=0, call=CALL)]
    visit = await _visit(Handle(events, [RunEnded(status="failed", error=BUSY)]), streams=True).run()
    assert (visit.status, visit.headers["x-should-retry"]) == (429, "false")


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_a_run_that_was_lost_here_is_asked_for_again_under_its_key(is_keyed: bool) -> None:
    """Another process goes on with it, tools and all; without a key the request would run them twice."""
    handle = Fed()
    manner = DeliveryOptions(streams=False, is_keyed=is_keyed)
    visit = _visit(handle, streams=False, manner=manner).begin()
    await handle.until_read()
    handle.encode(STARTED, ItemAdded(index=0, item=CALL), ToolStarted(index=0, call=CALL))
    handle.has_run_tools = True
    away = ErrorInfo(code="store_unavailable", message="The store does not answer.", status=503)
    handle.feed.publish([Numbered(event=RunEnded(status="failed", error=away), stands=False)])
    await visit.done()
    said = (visit.status, visit.headers["x-should-retry"], visit.headers.get("retry-after"))
    assert said == ((503, "true", "2") if is_keyed else (503, "false", None))


def _errors() -> dict[str, ErrorInfo]:
    """Return every error that Treadle has, by its code, also as an upstream may word it."""
    found = {each.code: each for each in vars(endings).values() if isinstance(each, ErrorInfo)}
    found |= {each.end.error.code: each.end.error for each in endings.ENDINGS if each.end and each.end.error}
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, TreadleError)]
    for kind in kinds:
        with contextlib.suppress(TypeError):  # of some there are only such as say more
            found.setdefault(kind.code, kind("why").info)
    statuses = [UpstreamStatus("why", status=status) for status in (400, 401, 404, 408, 429, 500, 503, 529)]
    return found | {f"upstream {each.upstream_status}": each.info for each in statuses}


ERRORS = _errors()


@pytest.mark.parametrize("code", ERRORS)
async def test_no_failure_says_both_when_to_come_back_and_not_to(code: str) -> None:
    """Whatever failed, with a time or without, whether tools have run, and whether the request has a key."""
    for after_s, has_run_tools, is_keyed in itertools.product((None, 6.2), (False, True), (False, True)):
        error = msgspec.structs.replace(ERRORS[code], retry_after_s=after_s or ERRORS[code].retry_after_s)
        handle = Handle([STARTED, RunEnded(status="failed", error=error)])
        handle.has_run_tools = has_run_tools
        visit = await _visit(handle, streams=False, manner=DeliveryOptions(streams=False, is_keyed=is_keyed)).run()
        said, when = visit.headers.get("x-should-retry"), visit.headers.get("retry-after")
        about = (after_s, has_run_tools, is_keyed)
        assert visit.status == error.status
        assert not (said == "false" and when), about
        if may_retry(error, has_run_tools=has_run_tools, is_keyed=is_keyed):
            assert said is None, about
            assert when or error.status not in (429, 503, 529), about
        else:
            assert said == "false", about


async def test_a_failure_that_retrying_cannot_help_says_so() -> None:
    """Clients retry every 5xx unless told otherwise."""
    error = ErrorInfo(code="upstream_status", message="Our key is wrong.", status=502)
    visit = await _visit(Handle([STARTED, RunEnded(status="failed", error=error)]), streams=False).run()
    assert (visit.status, visit.headers["x-should-retry"]) == (502, "false")


async def test_without_streaming_the_same_encoder_gives_the_body() -> None:
    """The body is the stream folded; the limit is named in a header."""
    ended = RunEnded(status="completed", limit="max_iterations")
    visit = await _visit(Handle([STARTED, ROUND, MESSAGE], [ended]), streams=False).run()
    assert visit.body == b"RunStarted,RoundStarted,ItemAdded,RunEnded"
    assert (visit.status, visit.headers["content-type"], visit.headers["x-treadle-limit"]) == (
        200,
        "application/json",
        "max_iterations",
    )


async def test_an_empty_answer_is_still_a_stream() -> None:
    """A run that ends well without saying anything opens and ends properly."""
    visit = await _visit(Handle([STARTED, COMPLETED]), streams=True).run()
    assert (visit.status, visit.writes) == (200, [b"<RunStarted><RunEnded>"])


@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_that_goes_away_cancels_its_run(streams: bool) -> None:
    """Nobody is left to read the answer, so nobody should pay for it."""
    handle = Handle([STARTED, MESSAGE])
    visit = _visit(handle, streams=streams).begin()
    visit.leave()
    async with asyncio.timeout(5):
        await handle.cancelled.wait()
    await visit.done()


async def test_an_encoder_that_breaks_takes_its_run_with_it() -> None:
    """Nobody could read what the run would go on to say."""
    handle = Handle([STARTED])
    encoder = Encoder(streams=True)
    encoder.feed = _broken  # type: ignore[method-assign]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, "req_1")
        await exchange.body(100, 1.0)
        await RunResponse(exchange, cast("Any", handle), RunWriter(encoder), DeliveryOptions(), _audience()).run(60.0)

    with pytest.raises(ZeroDivisionError):
        await Visit(app, "POST", "/v1/chat/completions").run()
    assert handle.cancelled.is_set()


def _broken(event: RunEvent) -> list[bytes]:
    raise ZeroDivisionError


async def test_silence_in_an_answer_is_broken_by_an_empty_event() -> None:
    """The encoder's own empty event keeps the connection; it opens the stream if a silent tool runs long."""
    handle = Handle([STARTED, ItemAdded(index=0, item=CALL)])
    visit = _visit(handle, streams=True, keep_alive_s=0.01).begin()
    await visit.until(b"<KeptAlive><KeptAlive>")
    assert visit.body.startswith(b"<RunStarted><KeptAlive>")
    handle.encode(COMPLETED)
    await visit.done()
    assert visit.body.endswith(b"<RunEnded>")


async def test_silence_before_the_answer_keeps_the_status_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the upstream's first byte an error can still be an HTTP error, so nothing is sent."""
    silences = Silences(monkeypatch)
    handle = Handle([STARTED, ROUND])
    visit = _visit(handle, streams=True, keep_alive_s=0.005).begin()
    await silences.until(3)
    assert visit.status == 0
    handle.encode(RunEnded(status="failed", error=BUSY))
    await visit.done()
    assert visit.status == 429


async def test_a_run_whose_events_stop_without_an_end_still_gets_one() -> None:
    """A run that lost its journal ends as failed, and the client hears of it."""
    handle = Handle([STARTED])
    handle.stop()
    visit = await _visit(handle, streams=True).run()
    assert (visit.status, visit.json()["error"]["code"]) == (503, "lost")


async def test_a_large_body_is_read_off_the_loop() -> None:
    """A megabyte of history does not stop the other streams."""
    where: list[int] = []

    def reader(body: bytes) -> int:
        where.append(threading.get_ident())
        return len(body)

    assert await read(b"x" * OFF_LOOP_BYTES, reader) == OFF_LOOP_BYTES
    assert await read(b"x" * (OFF_LOOP_BYTES + 1), reader) == OFF_LOOP_BYTES + 1
    assert where[0] == threading.get_ident() != where[1]


async def test_an_array_is_streamed_as_json() -> None:
    """Gemini's stream without frames is one JSON document."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, "req_1")
        await exchange.body(100, 1.0)
        handle = cast("Any", Handle([STARTED, MESSAGE, COMPLETED]))
        manner = DeliveryOptions(content_type=JSON)
        await RunResponse(exchange, handle, RunWriter(Encoder(streams=True)), manner, _audience()).run(60.0)

    visit = await Visit(app, "POST", "/v1beta/models/m:streamGenerateContent").run()
    assert (visit.status, visit.headers["content-type"]) == (200, "application/json")
    assert visit.body == b"<RunStarted><ItemAdded><RunEnded>"


async def test_other_events_can_be_told_in_the_place_of_the_runs_own() -> None:
    """The status follows what is told: a failure that only the retelling knows is still an HTTP error."""

    def retell(event: RunEvent) -> list[RunEvent]:
        if isinstance(event, RunEnded):
            return [RunEnded(status="failed", error=BUSY)]
        return [] if isinstance(event, ItemAdded) else [event]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, "req_1")
        await exchange.body(100, 1.0)
        handle = cast("Any", Handle([STARTED, MESSAGE, COMPLETED]))
        reply = RunResponse(exchange, handle, RunWriter(Encoder(streams=True), retell), DeliveryOptions(), _audience())
        await reply.run(60.0)

    visit = await Visit(app, "POST", "/v1/responses").run()
    assert (visit.status, visit.json()["error"]["code"]) == (429, "busy")


@pytest.mark.parametrize("streams", [True, False])
async def test_what_was_lost_on_the_way_is_told_in_a_header(streams: bool) -> None:
    """Short, by number; repairs and what was kept are no loss."""
    handle = Handle([STARTED, MESSAGE, COMPLETED])
    handle.notes = (
        Note(code="hosted_tool_dropped", action="dropped", message="web_search"),
        Note(code="orphan_call_closed", action="repaired", message="closed"),
    )
    assert (await _visit(handle, streams=streams).run()).headers["x-treadle-fidelity"] == "dropped=1"
    whole = await _visit(Handle([STARTED, COMPLETED]), streams=streams).run()
    assert whole.headers["x-treadle-fidelity"] == "exact"


async def test_a_run_that_another_process_goes_on_with_is_not_told_as_ended() -> None:
    """The stream is cut, which no client takes for an end; before it began there is a time to ask again."""

    class Leaving(Handle):
        async def wait(self) -> RunEnded:
            return RunEnded(status="failed", error=ErrorInfo(code="handed_over", message="Elsewhere."))

    for events, begun in (([STARTED], False), ([STARTED, MESSAGE], True)):
        handle = Leaving(events)
        handle.stop()
        visit = _visit(handle, streams=True)
        with pytest.raises(HttpError) as caught:
            await visit.run()
        assert (caught.value.http_status, caught.value.retry_after) == (503, 1.0)
        assert (visit.status, visit.is_complete) == (200 if begun else 0, False)
