"""What the headers of a request ask for."""

from typing import Any

import pytest

from treadle.config import Route, ServerSection, Settings, ToolsSection
from treadle.core.errors import ProtocolError
from treadle.core.request import Request, Surface
from treadle.http.asgi import AsgiMessage
from treadle.server.delivery.request_headers import (
    asks_default_delivery,
    default_options,
    has_default_delivery,
    read_idempotency,
    read_options,
)
from treadle.server.delivery.stream_event_ids import Position
from treadle.server.http_exchange import Exchange

STREAMED = Request(protocol="chat", model="m", surface=Surface(stream=True))
SETTINGS = Settings(server=ServerSection(reconnect_s=7.0))


def _exchange(body: bytes = b"{}", *, path: str = "/v1/chat/completions", **headers: str) -> Exchange:
    async def receive() -> AsgiMessage:
        raise NotImplementedError

    async def send(_: AsgiMessage) -> None:
        raise NotImplementedError

    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope: Any = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": named}
    exchange = Exchange(scope, receive, send, "req_1")
    exchange.content = body
    return exchange


def test_a_plain_request_wishes_for_nothing() -> None:
    """Its run ends with its connection, and its frames have no numbers."""
    wishes = read_options(_exchange(), STREAMED, SETTINGS)
    assert (wishes.idempotency, wishes.position, wishes.cancel_after_s, wishes.shows_ids) == (None, None, 0.0, False)


def test_a_request_with_a_key_may_come_back() -> None:
    """Its run waits, its frames are numbered, and its place is read."""
    wishes = read_options(_exchange(idempotency_key="k", last_event_id="12"), STREAMED, SETTINGS)
    assert wishes.idempotency is not None
    assert (wishes.idempotency.key, wishes.position, wishes.cancel_after_s, wishes.shows_ids) == (
        "k",
        Position(12),
        7.0,
        True,
    )


@pytest.mark.parametrize(
    ("request_", "server", "route", "header", "patience_s"),
    [
        (STREAMED, "cancel", None, "", 0.0),
        (STREAMED, "continue", None, "", None),
        (STREAMED, "cancel", "continue", "", None),
        (STREAMED, "continue", "cancel", "", 0.0),
        (STREAMED, "continue", "continue", "cancel", 0.0),
        (STREAMED, "cancel", "cancel", "Continue", None),
        (Request(protocol="responses", model="m", background=True), "cancel", "cancel", "cancel", None),
    ],
)
def test_the_nearest_word_on_leaving_holds(
    request_: Request, server: Any, route: Any, header: str, patience_s: float | None
) -> None:
    """The request's own, then its route's, then the server's; what is in the background always goes on."""
    settings = Settings(
        server=ServerSection(on_disconnect=server), route=(Route(model="m*", upstream="u", on_disconnect=route),)
    )
    exchange = _exchange(**({"x_treadle_on_disconnect": header} if header else {}))
    assert read_options(exchange, request_, settings).cancel_after_s == patience_s


@pytest.mark.parametrize("server", ["cancel", "continue"])
@pytest.mark.parametrize("route", ["cancel", "continue", None])
@pytest.mark.parametrize("background", [True, False])
def test_without_any_header_there_is_nothing_to_read(server: Any, route: Any, background: bool) -> None:
    """What is known at once is what would have been read; with a header nothing is known yet."""
    routes = () if route is None else (Route(model="m*", upstream="u", on_disconnect=route),)
    settings = Settings(server=ServerSection(on_disconnect=server), route=routes)
    asked = Request(protocol="responses", model="m", background=background)
    assert default_options(_exchange(), asked, settings) == read_options(_exchange(), asked, settings)
    assert default_options(_exchange(idempotency_key="k"), asked, settings) is None


@pytest.mark.parametrize(
    ("settings", "is_plain"),
    [
        (Settings(), True),
        (
            Settings(route=(Route(model="m", upstream="u", on_disconnect="cancel"), Route(model="n", upstream="u"))),
            True,
        ),
        (Settings(route=(Route(model="m", upstream="u", on_disconnect="continue"),)), False),
        (Settings(server=ServerSection(on_disconnect="continue")), False),
        (Settings(extended_events=True), False),
        (Settings(strict_fidelity=True), False),
        (Settings(tools=ToolsSection(tool_status="text")), False),
    ],
)
def test_settings_that_say_how_to_answer_are_known(settings: Settings, is_plain: bool) -> None:
    """With the others a request that says nothing of it has nothing that would have to be looked up."""
    assert has_default_delivery(settings) is is_plain


@pytest.mark.parametrize(
    "header",
    [
        "idempotency_key",
        "last_event_id",
        "x_treadle_on_disconnect",
        "x_stainless_retry_count",
        "x_treadle_events",
        "x_treadle_strict_fidelity",
        "cache_control",
    ],
)
def test_a_header_that_says_how_to_answer_is_heeded(header: str) -> None:
    """Whatever it says."""
    assert asks_default_delivery(_exchange(), STREAMED)
    assert asks_default_delivery(_exchange(content_type="application/json"), STREAMED)
    assert not asks_default_delivery(_exchange(**{header: "1"}), STREAMED)


@pytest.mark.parametrize(
    "request_",
    [
        Request(protocol="responses", model="m", background=True),
        Request(protocol="chat", model="m", strict_fidelity=True),
        Request(protocol="chat", model="m", is_fresh=True),
        Request(protocol="chat", model="m", surface=Surface(tool_status=True)),
    ],
)
def test_a_body_that_says_how_to_answer_is_heeded(request_: Request) -> None:
    """What the settings and the headers say is put together with it."""
    assert not asks_default_delivery(_exchange(), request_)


def test_the_hash_is_of_what_was_asked() -> None:
    """However it is spelled; other values, other paths and other bodies are another request."""

    def digest(body: bytes, path: str = "/v1/chat/completions") -> str:
        found = read_idempotency(_exchange(body, path=path, idempotency_key="k"))
        assert found is not None
        return found.request_sha256

    same = {
        digest(b'{"a":1,"b":[2,3]}'),
        digest(b'{ "b" : [2, 3], "a": 1 }'),
        digest(b'{"a":1,"b":[2,3]}', "/chat/completions"),
    }
    assert len(same) == 1
    others = {digest(b'{"a":1,"b":[3,2]}'), digest(b'{"a":1,"b":[2,3]}', "/v1/messages"), digest(b"not json")}
    assert len(same | others) == 4


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"idempotency_key": ""}, "Idempotency-Key"),
        ({"idempotency_key": "x" * 256}, "Idempotency-Key"),
        ({"idempotency_key": "a\x7fb"}, "Idempotency-Key"),
        ({"last_event_id": "3"}, "Last-Event-ID"),
        ({"idempotency_key": "k", "last_event_id": "three"}, "Last-Event-ID"),
        ({"x_treadle_on_disconnect": "stay"}, "x-treadle-on-disconnect"),
    ],
)
def test_a_header_that_makes_no_sense_is_named(headers: dict[str, str], param: str) -> None:
    """So that whoever sent it finds it."""
    with pytest.raises(ProtocolError) as caught:
        read_options(_exchange(**headers), STREAMED, SETTINGS)
    assert caught.value.param == param


@pytest.mark.parametrize("surface", [Surface(), Surface(stream=True, is_array=True), Surface(stream=True, choices=2)])
def test_only_a_stream_of_events_can_be_gone_on_with(surface: Surface) -> None:
    """A body and an array have no frames, and several choices come in no fixed order."""
    request = Request(protocol="chat", model="m", surface=surface)
    with pytest.raises(ProtocolError) as caught:
        read_options(_exchange(idempotency_key="k", last_event_id="3"), request, SETTINGS)
    assert caught.value.param == "Last-Event-ID"


def test_googles_client_gets_no_numbers() -> None:
    """It reads every line that is no data as JSON."""
    exchange = _exchange(idempotency_key="k", x_goog_api_client="google-genai-sdk/3.1.0")
    assert not read_options(exchange, STREAMED, SETTINGS).shows_ids


def test_an_sdk_that_counts_its_attempts_may_come_again() -> None:
    """It waits longer each time; with a key the count says nothing more."""
    exchange = _exchange(x_stainless_retry_count="0")
    exchange.digest = "d"
    first = read_options(exchange, STREAMED, SETTINGS)
    assert (first.retry, first.attempt, first.retry_s) == ("d", 0, 0.9)
    exchange = _exchange(x_stainless_retry_count="2")
    exchange.digest = "d"
    assert read_options(exchange, STREAMED, SETTINGS).retry_s == 2.4
    keyed = read_options(_exchange(x_stainless_retry_count="2", idempotency_key="k"), STREAMED, SETTINGS)
    assert (keyed.retry, keyed.retry_s) == ("", 0.0)


@pytest.mark.parametrize("count", ["", "x", "-1", "1000"])
def test_an_attempt_that_is_no_number_is_none(count: str) -> None:
    """The header is not ours, so it is not refused."""
    assert read_options(_exchange(x_stainless_retry_count=count), STREAMED, SETTINGS).retry_s == 0.0


@pytest.mark.parametrize(
    ("protocol", "position"), [("chat", None), ("messages", None), ("gemini", None), ("responses", Position(0))]
)
def test_a_place_is_counted_as_its_protocol_counts(protocol: Any, position: Position | None) -> None:
    """Responses numbers its first frame 0, the others 1."""
    request = Request(protocol=protocol, model="m", surface=Surface(stream=True))
    assert read_options(_exchange(idempotency_key="k", last_event_id="0"), request, SETTINGS).position == position
