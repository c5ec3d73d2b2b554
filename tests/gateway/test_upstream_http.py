"""The real HTTP client against a real server on loopback: what arrives, what breaks, what is closed."""

import asyncio
import gzip
import logging
import socket
import traceback

import pytest

from treadle.config import Settings
from treadle.config.settings import UpstreamsSection
from treadle.core.errors import BrokenStream, UpstreamError, UpstreamStatus, UpstreamTimeout
from treadle.core.events import Failed, Finished, ModelEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import text_message
from treadle.core.plan import Plan
from treadle.providers.fakes.fake_server import Canned, CannedTable, ScriptServer
from treadle.providers.provider_client import HttpClient
from treadle.providers.provider_endpoint import Endpoint, Secret
from treadle.providers.provider_model import UpstreamModel
from treadle.runtime.injected_parts import SystemClock
from treadle.runtime.provider_setup import make_client

KEY = "sk-very-secret-0001"
WAIT_S = 10.0
CHUNK = b'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}\n\n'
HEAD = CHUNK % (b'{"role":"assistant","content":"Hel"}', b"null")
TAIL = CHUNK % (b'{"content":"lo"}', b"null") + CHUNK % (b"{}", b'"stop"') + b"data: [DONE]\n\n"
GOOD = HEAD + TAIL
PLAN = Plan(items=(text_message("user", "hi"),), model="m")


@pytest.fixture
async def client():
    """A client that is closed after the test."""
    client = HttpClient()
    yield client
    await client.close()


def table(canned: Canned) -> CannedTable:
    """Answer the model of PLAN with these bytes."""
    return CannedTable(models={"m": canned})


def endpoint(url: str, **fields: object) -> Endpoint:
    """Return an endpoint with a key."""
    given = {"name": "up", "base_url": url, "key": Secret(KEY), "key_env": "UP_KEY", **fields}
    return Endpoint(**given)  # type: ignore[arg-type]


def model(url: str, client: HttpClient, **fields: object) -> UpstreamModel:
    """Return a model of that endpoint."""
    return UpstreamModel(endpoint(url, **fields), client, CountingIds())


async def collect(model: UpstreamModel, plan: Plan = PLAN) -> list[ModelEvent]:
    """Return all events of one call."""
    async with asyncio.timeout(WAIT_S):
        return [event async for batch in model.stream(plan, "run_1") for event in batch]


def text(events: list[ModelEvent]) -> str:
    """Join the text that was said."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def failure(events: list[ModelEvent]) -> Failed:
    """Return the one terminal event, which must be a failure."""
    last = events[-1]
    assert isinstance(last, Failed)
    assert sum(isinstance(event, Finished | Failed) for event in events) == 1
    return last


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, None])
async def test_a_stream_gives_its_events_whatever_the_chunks(client, chunk_bytes):
    """Text and finish arrive, the terminal event once and last."""
    async with ScriptServer(table(Canned(body=GOOD, chunk_bytes=chunk_bytes))) as server:
        events = await collect(model(server.url, client))
    assert text(events) == "Hello"
    assert [event for event in events if isinstance(event, Finished | Failed)] == [events[-1]]
    assert isinstance(events[-1], Finished)
    assert events[-1].stop == "done"


async def test_what_is_sent_is_the_written_plan_with_treadle_s_key(client):
    """The server sees the protocol's path, a JSON body for the renamed model, the key, and extra headers."""
    async with ScriptServer(CannedTable(models={"there": Canned(body=GOOD)})) as server:
        target = endpoint(server.url, headers={"x-extra": "1"})
        await collect(UpstreamModel(target, client, CountingIds(), name="there"))
        (received,) = server.received
    assert received.path == "/v1/chat/completions"
    assert b'"model":"there"' in received.body
    assert b'"stream":true' in received.body
    wanted = {
        "Authorization": f"Bearer {KEY}",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "x-extra": "1",
    }
    assert {name: received.headers.get(name) for name in wanted} == wanted


async def test_without_a_key_no_authorization_is_sent(client):
    """A local server without keys is asked without one."""
    async with ScriptServer(table(Canned(body=GOOD))) as server:
        await collect(model(server.url, client, key=None))
    assert "Authorization" not in server.received[0].headers


async def test_batches_come_as_the_network_delivers_them(client):
    """The first words are yielded while the server still holds the rest back."""
    async with ScriptServer(table(Canned(body=GOOD, hold_after=len(HEAD)))) as server, asyncio.timeout(WAIT_S):
        stream = model(server.url, client).stream(PLAN, "run_1")
        first = await anext(stream)
        assert text(first) == "Hel"
        server.release.set()
        rest = [event async for batch in stream for event in batch]
    assert text(rest) == "lo"
    assert isinstance(rest[-1], Finished)


async def test_closing_the_stream_closes_the_connection(client):
    """When the client goes away the provider sees it at once, in the middle of a silent stream."""
    async with ScriptServer(table(Canned(body=GOOD, hold_after=len(HEAD)))) as server, asyncio.timeout(WAIT_S):
        stream = model(server.url, client).stream(PLAN, "run_1")
        await anext(stream)
        await stream.aclose()
        await server.disconnected.wait()


async def test_cancelling_the_reader_closes_the_connection(client):
    """A task cancelled while it waits for the provider leaves no connection behind."""
    async with ScriptServer(table(Canned(body=GOOD, hold_after=len(HEAD)))) as server, asyncio.timeout(WAIT_S):
        begun = asyncio.Event()

        async def read() -> None:
            stream = model(server.url, client).stream(PLAN, "run_1")
            try:
                async for _ in stream:
                    begun.set()
            finally:
                await stream.aclose()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.disconnected.wait()


async def test_calls_one_after_another_share_a_connection(client):
    """A stream read to its end gives its connection back, also when the reader stops at the terminal event."""
    async with ScriptServer(table(Canned(body=GOOD))) as server, asyncio.timeout(WAIT_S):
        for _ in range(3):
            stream = model(server.url, client).stream(PLAN, "run_1")
            async for batch in stream:
                if isinstance(batch[-1], Finished):
                    break
            await stream.aclose()
        assert (len(server.received), len(server.connections)) == (3, 1)


async def test_streams_at_once_have_connections_of_their_own(client):
    """Two open streams do not wait for each other."""
    async with ScriptServer(table(Canned(body=GOOD, hold_after=len(HEAD)))) as server, asyncio.timeout(WAIT_S):
        streams = [model(server.url, client).stream(PLAN, "run_1") for _ in range(2)]
        firsts = [await anext(stream) for stream in streams]
        assert [text(first) for first in firsts] == ["Hel", "Hel"]
        server.release.set()
        for stream in streams:
            assert isinstance([event async for batch in stream for event in batch][-1], Finished)
        assert len(server.connections) == 2


async def test_a_full_pool_is_a_timeout_and_not_a_hang():
    """Past `connections_max` a call waits no longer than it would for a connection, and says why."""
    client = HttpClient(connections_max=1)
    async with ScriptServer(table(Canned(body=GOOD, hold_after=len(HEAD)))) as server, asyncio.timeout(WAIT_S):
        stream = model(server.url, client).stream(PLAN, "run_1")
        await anext(stream)
        with pytest.raises(UpstreamTimeout, match=r"all connections were in use for 0\.05 s") as caught:
            await collect(model(server.url, client, connect_s=0.05))
        assert caught.value.info.code == "upstream_crowded"
        assert "connections_max" in (caught.value.hint or "")
        await stream.aclose()
    await client.close()


@pytest.mark.parametrize(
    ("status", "http_status", "code"),
    [
        (400, 400, "billing_not_active"),
        (401, 502, "upstream_key_refused"),
        (403, 502, "upstream_key_refused"),
        (404, 404, "billing_not_active"),
        (429, 429, "billing_not_active"),
        (500, 502, "billing_not_active"),
        (503, 503, "billing_not_active"),
        (529, 503, "billing_not_active"),
    ],
)
async def test_a_refusal_is_raised_with_the_provider_s_meaning(client, status, http_status, code):
    """Each status row of DESIGN 4b, from a real answer: status, code, message, retry-after."""
    body = b'{"error":{"message":"No, says the provider","type":"x","code":"billing_not_active"}}'
    canned = Canned(status=status, headers={"content-type": "application/json", "retry-after": "3"}, body=body)
    async with ScriptServer(table(canned)) as server:
        with pytest.raises(UpstreamStatus) as caught:
            await collect(model(server.url, client))
    info = caught.value.info
    assert (info.status, info.code, info.retry_after_s) == (http_status, code, 3.0)
    assert info.message == f"upstream 'up' answered {status}: No, says the provider"


async def test_a_refusal_with_an_endless_body_is_read_only_in_part(client):
    """An error page without end neither fills memory nor keeps the call waiting."""
    canned = Canned(status=500, headers={"content-type": "text/plain"}, body=b"x" * 1_000_000, hold_after=500_000)
    async with ScriptServer(table(canned)) as server:
        with pytest.raises(UpstreamStatus) as caught:
            await collect(model(server.url, client))
        async with asyncio.timeout(WAIT_S):
            await server.disconnected.wait()
    assert len(caught.value.message) < 3_000


async def test_a_refusal_that_breaks_off_keeps_what_it_said(client):
    """The status counts even when its body is cut."""
    canned = Canned(status=503, headers={"content-type": "text/plain"}, body=b"overloaded, please", abort_after=10)
    async with ScriptServer(table(canned)) as server:
        with pytest.raises(UpstreamStatus, match="answered 503: overloaded"):
            await collect(model(server.url, client))


async def test_a_redirect_is_not_followed(client):
    """A provider cannot send Treadle, with its key, somewhere else."""
    async with ScriptServer(table(Canned(body=GOOD))) as inner:
        canned = Canned(status=307, headers={"location": f"{inner.url}/chat/completions"})
        async with ScriptServer(table(canned)) as server:
            with pytest.raises(BrokenStream, match="answered 307, a redirect") as caught:
                await collect(model(server.url, client))
        assert inner.received == []
    assert caught.value.info.status == 502


async def test_a_page_instead_of_a_reply_hints_at_the_base_url(client):
    """200 with HTML is what a wrong base URL looks like."""
    canned = Canned(headers={"content-type": "text/html; charset=utf-8"}, body=b"<html>Welcome</html>")
    async with ScriptServer(table(canned)) as server:
        with pytest.raises(BrokenStream, match="an HTML page instead of a model's reply") as caught:
            await collect(model(server.url, client))
    assert "/v1" in (caught.value.hint or "")


async def test_a_page_under_another_name_is_a_failed_stream(client):
    """HTML that calls itself an event stream is a failure too, not an empty success."""
    async with ScriptServer(table(Canned(body=b"<html>Welcome</html>"))) as server:
        events = await collect(model(server.url, client))
    assert failure(events).error.status == 502


async def test_an_empty_answer_is_a_failed_stream(client):
    """Nothing at all is not an answer."""
    async with ScriptServer(table(Canned())) as server:
        assert failure(await collect(model(server.url, client))).error.status == 502


async def test_an_answer_whole_is_read_as_well_as_a_stream(client):
    """A provider that ignores `stream` and sends one JSON body is understood."""
    message = b'{"role":"assistant","content":"Hello"}'
    body = b'{"object":"chat.completion","choices":[{"index":0,"message":%s,"finish_reason":"stop"}]}' % message
    async with ScriptServer(table(Canned(headers={"content-type": "application/json"}, body=body))) as server:
        events = await collect(model(server.url, client))
    assert text(events) == "Hello"
    assert isinstance(events[-1], Finished)


async def test_a_compressed_answer_is_read(client):
    """A proxy that compresses although nobody asked for it does no harm."""
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with ScriptServer(table(Canned(headers=headers, body=gzip.compress(GOOD)))) as server:
        assert text(await collect(model(server.url, client))) == "Hello"


async def test_a_compressed_bomb_is_bounded():
    """What unpacks to more than one response may hold ends the stream, long before it is unpacked in full."""
    client = HttpClient(response_bytes_max=1_000_000)
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    bomb = gzip.compress(HEAD + b": " + b"x" * 50_000_000)
    async with ScriptServer(table(Canned(headers=headers, body=bomb))) as server:
        error = failure(await collect(model(server.url, client))).error
    await client.close()
    assert error.message == "upstream 'up' sent more than one response may hold"


async def test_a_line_without_end_is_bounded(client):
    """A single event larger than any buffer fails the stream instead of filling memory."""
    body = HEAD + b"data: " + b"x" * 20_000_000
    async with ScriptServer(table(Canned(body=body))) as server:
        events = await collect(model(server.url, client))
    assert text(events) == "Hel"
    assert failure(events).error.code == "upstream_too_large"


async def test_a_cut_after_the_first_words_is_a_failed_event(client):
    """The network breaks in the middle: the words stay, the last event says what happened."""
    async with ScriptServer(table(Canned(body=GOOD, abort_after=len(HEAD)))) as server:
        events = await collect(model(server.url, client))
    assert text(events) == "Hel"
    error = failure(events).error
    assert (error.code, error.status) == ("upstream_broken_stream", 502)
    assert "broke off in the middle of its answer" in error.message


async def test_a_cut_after_the_finish_reason_harms_nothing(client):
    """The answer was complete; that the farewell is missing is no failure."""
    body = GOOD.removesuffix(b"data: [DONE]\n\n")
    async with ScriptServer(table(Canned(body=body, abort_after=len(body)))) as server:
        events = await collect(model(server.url, client))
    assert (text(events), type(events[-1])) == ("Hello", Finished)


async def test_a_reset_after_the_headers_is_raised(client):
    """Before the first event a broken connection is an error that may be retried elsewhere, not half a stream."""
    async with ScriptServer(table(Canned(body=GOOD, abort_after=0))) as server:
        with pytest.raises(UpstreamError, match="broke off"):
            await collect(model(server.url, client))


async def test_silence_in_the_middle_is_a_timeout_event(client):
    """Past idle_s the stream fails with the timeout's own status, and the connection is closed."""
    async with ScriptServer(table(Canned(body=GOOD, hold_after=len(HEAD)))) as server, asyncio.timeout(WAIT_S):
        events = await collect(model(server.url, client, idle_s=0.05))
        await server.disconnected.wait()
    error = failure(events).error
    assert (error.code, error.status) == ("upstream_timeout", 504)
    assert error.message.endswith("fell silent for 0.05 s")


async def test_silence_before_the_first_byte_is_raised(client):
    """A provider that accepts and never answers is a 504 for the client."""
    async with ScriptServer(table(Canned(body=GOOD, hold_after=0))) as server:
        with pytest.raises(UpstreamTimeout) as caught:
            await collect(model(server.url, client, idle_s=0.05))
    assert caught.value.info.status == 504


async def test_nobody_listening_names_the_host(client):
    """Connection refused says where, and that nothing listens there."""
    async with ScriptServer(table(Canned())) as server:
        url = server.url
    with pytest.raises(UpstreamError, match=r"cannot be reached: Connect") as caught:
        await collect(model(url, client))
    host = url.removeprefix("http://").removesuffix("/v1")
    assert caught.value.hint == f"is anything listening at {host}?"
    assert caught.value.info.status == 502


async def test_a_host_without_address_names_the_base_url(client, monkeypatch):
    """A misspelt host is told from a provider that is down."""

    async def find_nothing(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", find_nothing)
    with pytest.raises(UpstreamError, match="has no address") as caught:
        await collect(model("http://no-such-host.invalid/v1", client))
    assert caught.value.hint == "is the host in base_url http://no-such-host.invalid/v1 right?"


async def test_tls_where_there_is_none_is_said_so(client):
    """https to a server that speaks http is a TLS error with a hint."""
    async with ScriptServer(table(Canned(body=GOOD))) as server:
        with pytest.raises(UpstreamError, match="has no TLS that can be trusted"):
            await collect(model(server.url.replace("http:", "https:"), client))


async def test_an_answer_that_is_not_http_is_an_upstream_error(client):
    """A port where something else listens is no traceback."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp ready\r\n\r\n")
        await reader.read(65_536)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(UpstreamError, match="broke off before it answered"):
        await collect(model(f"http://127.0.0.1:{port}/v1", client))
    server.close()
    await server.wait_closed()


async def test_proxies_of_the_environment_are_asked_only_when_told(monkeypatch):
    """A stray HTTP_PROXY cannot see requests and keys, unless the client is told to use it."""
    async with ScriptServer(table(Canned(body=GOOD))) as server, ScriptServer(table(Canned(body=TAIL))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        for env_proxies, said in ((False, "Hello"), (True, "lo")):
            settings = Settings(upstreams=UpstreamsSection(env_proxies=env_proxies))
            for client in (HttpClient(env_proxies=env_proxies), make_client(settings, [], {}, SystemClock())):
                assert text(await collect(model(server.url, client))) == said
                await client.close()


async def test_cookies_are_not_kept(client):
    """What a provider sets for one request it does not get back with the next."""
    canned = Canned(body=GOOD, headers={"content-type": "text/event-stream", "set-cookie": "who=tenant-a"})
    async with ScriptServer(table(canned)) as server:
        await collect(model(server.url, client))
        await collect(model(server.url, client))
    assert [received.headers.get("Cookie") for received in server.received] == [None, None]


@pytest.mark.parametrize(
    "canned",
    [
        Canned(status=401, headers={}, body=f"wrong key {KEY}".encode()),
        Canned(status=500, headers={"x-long": "y" * 20_000}),
        Canned(body=GOOD, abort_after=0),
    ],
)
async def test_no_failure_shows_the_key(client, canned, caplog):
    """Neither message, hint, traceback nor log of any failure holds the key."""
    caplog.set_level(logging.DEBUG)
    async with ScriptServer(table(canned)) as server:
        with pytest.raises(UpstreamError) as caught:
            await collect(model(server.url, client))
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.info) + caplog.text
    assert "upstream" in shown
    assert KEY not in shown


async def test_the_provider_s_request_id_is_logged(client, caplog):
    """Support of a provider asks for its id: it is logged beside the run's."""
    caplog.set_level(logging.DEBUG, logger="treadle.providers.provider_model")
    canned = Canned(body=GOOD, headers={"content-type": "text/event-stream", "x-request-id": "req-77"})
    async with ScriptServer(table(canned)) as server:
        await collect(model(server.url, client))
    assert caplog.messages == ["run run_1: upstream up answered 200, its request id req-77"]


async def test_a_client_can_be_closed_twice_and_used_again(client):
    """Closing is safe at any time; the next call opens a new session."""
    async with ScriptServer(table(Canned(body=GOOD))) as server:
        await client.close()
        assert text(await collect(model(server.url, client))) == "Hello"
        await client.close()
        assert text(await collect(model(server.url, client))) == "Hello"
