"""One exchange: bounded reading, whole answers, streams, envelopes."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from treadle.core.errors import ErrorInfo, LimitExceeded
from treadle.http.asgi import AsgiMessage, Scope
from treadle.server.http_exchange import Exchange, HttpError, path_below

ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-request-id", b"req_1"),
]


class Wire:
    """Both ends of an exchange."""

    def __init__(
        self,
        path: str = "/treadle/v1/runs",
        *,
        method: str = "POST",
        headers: Sequence[tuple[bytes, bytes]] = (),
        incoming: Sequence[AsgiMessage] = (),
        query: bytes = b"",
    ) -> None:
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": list(headers),
        }
        self.sent: list[AsgiMessage] = []
        self.reads = 0
        self._incoming = list(incoming)
        self.exchange = Exchange(scope, self._receive, self._send, "req_1")

    async def _receive(self) -> AsgiMessage:
        self.reads += 1
        if not self._incoming:
            await asyncio.Event().wait()
        return self._incoming.pop(0)

    async def _send(self, message: AsgiMessage) -> None:
        self.sent.append(message)


def _chunks(*chunks: bytes) -> list[AsgiMessage]:
    last = len(chunks) - 1
    return [{"type": "http.request", "body": chunk, "more_body": n < last} for n, chunk in enumerate(chunks)]


async def test_a_body_in_chunks_is_read_whole() -> None:
    """The pieces are joined in order."""
    assert await Wire(incoming=_chunks(b"a", b"", b"bc")).exchange.body(10, 1.0) == b"abc"


async def test_a_declared_length_over_the_bound_is_refused_unread() -> None:
    """Nothing of such a body is taken in."""
    wire = Wire(headers=[(b"content-length", b"11")], incoming=_chunks(b"x" * 11))
    with pytest.raises(LimitExceeded) as caught:
        await wire.exchange.body(10, 1.0)
    assert (caught.value.info.status, wire.reads) == (413, 0)


async def test_a_chunked_body_over_the_bound_is_refused_while_reading() -> None:
    """Without a declared length the bytes are counted."""
    wire = Wire(incoming=_chunks(b"x" * 6, b"x" * 6, b"never read"))
    with pytest.raises(LimitExceeded):
        await wire.exchange.body(10, 1.0)
    assert wire.reads == 2


async def test_a_body_of_exactly_the_bound_is_taken() -> None:
    """The bound itself is allowed."""
    assert await Wire(incoming=_chunks(b"x" * 10)).exchange.body(10, 1.0) == b"x" * 10


async def test_a_body_that_never_ends_times_out() -> None:
    """A slow sender does not hold a request for ever."""
    wire = Wire(incoming=[{"type": "http.request", "body": b"x", "more_body": True}])
    with pytest.raises(HttpError) as caught:
        await wire.exchange.body(10, 0.01)
    assert (caught.value.info.status, caught.value.info.code) == (408, "request_timeout")


async def test_a_client_that_leaves_in_the_body_is_an_error() -> None:
    """Half a body is never parsed."""
    wire = Wire(incoming=[{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}])
    with pytest.raises(HttpError) as caught:
        await wire.exchange.body(10, 1.0)
    assert caught.value.info.code == "body_incomplete"


async def test_an_answer_is_one_start_and_one_body() -> None:
    """Status, type, length, safety headers and request id go out together."""
    wire = Wire()
    await wire.exchange.answer_json(201, {"a": 1}, ((b"location", b"/x"),))
    assert wire.sent == [
        {
            "type": "http.response.start",
            "status": 201,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"7"),
                (b"cache-control", b"no-store"),
                (b"location", b"/x"),
                *ALWAYS,
            ],
        },
        {"type": "http.response.body", "body": b'{"a":1}', "more_body": False},
    ]


async def test_head_gets_the_headers_of_get_and_no_body() -> None:
    """The length is that of the body it would have been."""
    wire = Wire(method="HEAD")
    await wire.exchange.answer(200, b"hello", b"text/plain", ())
    assert wire.sent[0].get("headers", [])[1] == (b"content-length", b"5")
    assert wire.sent[1].get("body") == b""


async def test_an_answer_without_content_has_no_type_or_length() -> None:
    """204 says nothing about a body."""
    wire = Wire()
    await wire.exchange.answer(204, headers=())
    assert wire.sent[0].get("headers") == ALWAYS


async def test_a_stream_tells_caches_and_proxies_to_stay_out() -> None:
    """The headers of a stream keep every hop from holding it back."""
    wire = Wire()
    await wire.exchange.begin()
    await wire.exchange.write(b"a")
    await wire.exchange.end(b"b")
    assert wire.sent == [
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                *ALWAYS,
            ],
        },
        {"type": "http.response.body", "body": b"a", "more_body": True},
        {"type": "http.response.body", "body": b"b", "more_body": False},
    ]


@pytest.mark.parametrize(
    ("path", "headers", "envelope"),
    [
        ("/v1/chat/completions", (), "chat"),
        ("/chat/completions", (), "chat"),
        ("/v1/responses/resp_1", (), "responses"),
        ("/responses", (), "responses"),
        ("/v1/messages", (), "messages"),
        ("/v1beta/models/x:generateContent", (), "gemini"),
        ("/v1/models", (), "chat"),
        ("/v1/models", ((b"anthropic-version", b"2023-06-01"),), "messages"),
        ("/v1/models", ((b"x-goog-api-key", b"k"),), "gemini"),
        ("/v1/models/vendor/x:generateContent", (), "gemini"),
        ("/v1/tunedModels/x:generateContent", (), "gemini"),
        ("/v1/unknown", (), "chat"),
        ("/treadle/v1/runs", (), "treadle"),
        ("/elsewhere", (), "treadle"),
    ],
)
def test_the_path_decides_the_envelope(path: str, headers: Sequence[tuple[bytes, bytes]], envelope: str) -> None:
    """An error is written in the form of the API that was called."""
    assert Wire(path, headers=headers).exchange.envelope == envelope


async def test_treadles_own_envelope_has_a_hint() -> None:
    """Treadle's API says what to do in a field of its own."""
    wire = Wire()
    await wire.exchange.refuse(ErrorInfo(code="not_found", message="No.", status=404, hint="Look.", param="id"))
    assert wire.sent[0].get("status") == 404
    assert msgspec.json.decode(wire.sent[1].get("body", b"")) == {
        "error": {"code": "not_found", "message": "No.", "hint": "Look.", "param": "id"}
    }


@pytest.mark.parametrize(
    ("status", "after_s", "helps", "header"),
    [
        (429, 2.2, True, [(b"retry-after", b"3")]),
        (429, None, True, [(b"retry-after", b"1")]),
        (429, None, False, []),
        (503, None, True, [(b"retry-after", b"1")]),
        (503, None, False, []),
        (502, None, True, []),
        (502, 7.0, True, [(b"retry-after", b"7")]),
        (429, -5.0, True, [(b"retry-after", b"0")]),
        (400, None, False, []),
    ],
)
async def test_a_busy_answer_says_when_to_come_back(
    status: int, after_s: float | None, helps: bool, header: list[tuple[bytes, bytes]]
) -> None:
    """Clients that retry are told when, in whole seconds; those whom that would not help are not."""
    wire = Wire()
    error = ErrorInfo(code="busy", message="Busy.", status=status, retryable=helps, retry_after_s=after_s)
    await wire.exchange.refuse(error)
    assert [pair for pair in wire.sent[0].get("headers", []) if pair[0] == b"retry-after"] == header


def test_the_query_is_bounded_and_its_last_value_counts() -> None:
    """A query is small by nature."""
    assert Wire(query=b"a=1&b=&a=2%20x").exchange.query() == {"a": "2 x", "b": ""}
    with pytest.raises(HttpError) as caught:
        Wire(query=b"a=" + b"x" * 9_000).exchange.query()
    assert caught.value.info.status == 414


@pytest.mark.parametrize(
    ("path", "root", "seen"),
    [
        ("/v1/models", "", "/v1/models"),
        ("/ai/v1/models", "/ai", "/v1/models"),
        ("/ai/v1/models", "/ai/", "/v1/models"),
        ("/ai", "/ai", "/"),
        ("/ai/", "/ai", "/"),
        ("/air/v1/models", "/ai", "/air/v1/models"),
        ("/v1/models", "/ai", "/v1/models"),
        ("/ai/ai/v1", "/ai", "/ai/v1"),
    ],
)
def test_a_path_is_seen_from_where_the_application_is_mounted(path: str, root: str, seen: str) -> None:
    """Servers give the whole path and say how much of it is the mount; some proxies have taken that away already."""
    assert path_below(path, root) == seen
