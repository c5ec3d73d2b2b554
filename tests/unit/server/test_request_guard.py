"""The guard: which requests are let in."""

import pytest

from treadle.core.errors import TreadleError
from treadle.http.asgi import AsgiMessage, Scope
from treadle.server.http_exchange import Exchange
from treadle.server.request_guard import HEADERS_MAX, KNOWN_MAX, RequestGuard, client_key, is_loopback, sane_request_id

JSON_TYPE = ("content-type", "application/json")


async def _never() -> AsgiMessage:
    raise AssertionError("the guard must not read the body")


async def _nowhere(message: AsgiMessage) -> None:
    raise AssertionError("the guard must not answer")


def _verdict(
    method: str, *headers: tuple[str, str], guard: RequestGuard | None = None, query: bytes = b""
) -> tuple[int, str] | None:
    """Return status and code of the refusal, or None."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope: Scope = {"type": "http", "method": method, "path": "/", "query_string": query, "headers": raw}
    try:
        (guard or RequestGuard("127.0.0.1")).check(Exchange(scope, _never, _nowhere, "req_1"), raw)
    except TreadleError as error:
        return error.info.status, error.info.code
    return None


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8700",
        "LOCALHOST:1",
        "127.0.0.1",
        "127.8.9.1:80",
        "[::1]:8700",
        "a.localhost",
        "localhost.",
    ],
)
def test_a_loopback_host_is_let_in_on_any_port(host: str) -> None:
    """Names that can only mean this machine are allowed."""
    assert _verdict("GET", ("host", host)) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example:8700",
        "localhost@evil.example",
        "evil@localhost",
        "localhost/x",
        "localhost?x",
        "[::1",
        "localhost:port",
        "",
        "10.0.0.1",
    ],
)
def test_any_other_host_is_refused(host: str) -> None:
    """A rebound name resolves to us, but the browser still says whose page it is."""
    assert _verdict("GET", ("host", host)) == (403, "host_not_allowed")


def test_what_is_remembered_of_hosts_is_bounded_and_lets_nobody_else_in() -> None:
    """However many spellings of its own name a client finds."""
    guard = RequestGuard("127.0.0.1")
    for number in range(KNOWN_MAX * 2):
        assert _verdict("GET", ("host", f"h{number}.localhost"), guard=guard) is None
    assert len(guard._known) <= KNOWN_MAX
    for _ in range(2):
        assert _verdict("GET", ("host", "evil.example"), guard=guard) == (403, "host_not_allowed")


def test_a_missing_or_doubled_host_is_refused() -> None:
    """Exactly one Host header is needed to decide anything."""
    assert _verdict("GET") == (400, "invalid_host")
    assert _verdict("GET", ("host", "localhost"), ("host", "evil.example")) == (400, "invalid_host")
    assert _verdict("GET", ("host", "localhost"), ("host", "localhost")) == (400, "invalid_host")
    assert _verdict("GET", ("host", "localhost"), ("via", "a"), ("via", "b")) is None


def test_the_configured_names_are_let_in() -> None:
    """The host listened on and the allowed hosts are names of ours; a wildcard address is not one."""
    guard = RequestGuard("192.168.0.7", ("gateway.example.org",))
    assert _verdict("GET", ("host", "192.168.0.7:8700"), guard=guard) is None
    assert _verdict("GET", ("host", "Gateway.Example.org"), guard=guard) is None
    assert _verdict("GET", ("host", "0.0.0.0:8700"), guard=RequestGuard("0.0.0.0")) == (403, "host_not_allowed")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://localhost", "file://", "http://[", "x"]
)
def test_another_origin_is_refused(method: str, origin: str) -> None:
    """Only our own page may speak from a browser, whatever it asks for; preflights are never granted."""
    headers = (("host", "localhost:8700"), ("origin", origin), JSON_TYPE)
    assert _verdict(method, *headers) == (403, "origin_not_allowed")


def test_our_own_origin_is_let_in() -> None:
    """The page's own requests carry the origin it was loaded from."""
    headers = (("host", "localhost:8700"), ("origin", "http://localhost:8700"), ("sec-fetch-site", "same-origin"))
    assert _verdict("POST", *headers, JSON_TYPE) is None


def test_a_cross_site_post_without_origin_is_refused() -> None:
    """Sec-Fetch-Site tells of a foreign page where a browser leaves Origin out."""
    headers = (("host", "localhost"), ("sec-fetch-site", "cross-site"))
    assert _verdict("POST", *headers, JSON_TYPE) == (403, "origin_not_allowed")
    assert _verdict("GET", *headers) is None


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx"]
)
def test_a_post_that_is_not_json_is_refused(kind: str) -> None:
    """What a form or a plain cross-origin fetch can send without asking is not accepted."""
    assert _verdict("POST", ("host", "localhost"), ("content-type", kind)) == (415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_the_type_of_no_body_at_all_is_no_matter(kind: str) -> None:
    """Programs send a type by default, as `curl -X POST -d ''` does; a browser's form without fields is refused."""
    empty = (("host", "localhost"), ("content-type", kind), ("content-length", "0"))
    assert _verdict("POST", *empty) is None
    refused = (415, "unsupported_media_type")
    assert _verdict("POST", *empty, ("sec-fetch-mode", "navigate")) == refused
    assert _verdict("POST", *empty, ("transfer-encoding", "chunked")) == refused
    assert _verdict("POST", *empty[:2], ("content-length", "1")) == refused


def test_json_is_recognised_with_parameters_and_in_any_case() -> None:
    """A charset does not change what the body is."""
    assert _verdict("POST", ("host", "localhost"), ("content-type", "Application/JSON; charset=utf-8")) is None


def test_a_missing_content_type_is_tolerated_from_programs_only() -> None:
    """A browser always knows what it sends; a program that forgot the header does no harm."""
    assert _verdict("POST", ("host", "localhost")) is None
    browser = (("host", "localhost"), ("sec-fetch-site", "same-origin"))
    assert _verdict("POST", *browser) == (415, "unsupported_media_type")


def test_a_compressed_body_is_refused() -> None:
    """No body is unpacked, so none can explode."""
    headers = (("host", "localhost"), JSON_TYPE, ("content-encoding", "gzip"))
    assert _verdict("POST", *headers) == (415, "unsupported_encoding")
    assert _verdict("POST", ("host", "localhost"), JSON_TYPE, ("content-encoding", "identity")) is None


def test_too_many_or_too_large_headers_are_refused() -> None:
    """Headers are bounded in number and in bytes."""
    many = [(f"x-{number}", "1") for number in range(HEADERS_MAX)]
    assert _verdict("GET", ("host", "localhost"), *many) == (431, "headers_too_large")
    assert _verdict("GET", ("host", "localhost"), ("x-long", "a" * 70_000)) == (431, "headers_too_large")


def test_an_endless_path_is_refused() -> None:
    """What is echoed in a message is bounded first."""
    raw = [(b"host", b"localhost")]
    scope: Scope = {"type": "http", "method": "GET", "path": "/" + "x" * 3_000, "query_string": b"", "headers": raw}
    with pytest.raises(TreadleError) as caught:
        RequestGuard("127.0.0.1").check(Exchange(scope, _never, _nowhere, "req_1"), raw)
    assert (caught.value.info.status, caught.value.info.code) == (414, "path_too_long")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b"req-1.a:b_C", "req-1.a:b_C"),
        (b"", None),
        (b"a b", None),
        (b"a\x00", None),
        (b"a\n", None),
        (b"\xe9", None),
        (b"x" * 129, None),
    ],
)
def test_only_a_harmless_request_id_is_taken_over(given: bytes, kept: str | None) -> None:
    """What is logged and echoed cannot forge a line."""
    assert sane_request_id(given) == kept


def test_loopback_is_told_from_what_looks_like_it() -> None:
    """The check is on the name itself, not on a resolver's answer."""
    assert [is_loopback(host) for host in ("::1", "127.0.0.1", "localhost", "0.0.0.0", "::", "example.org", "")] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1beta/models/m:generateContent"])
@pytest.mark.parametrize(
    ("headers", "query", "key"),
    [
        ([("authorization", "Bearer sk-1")], "", "sk-1"),
        ([("authorization", "bearer  sk-1 ")], "", "sk-1"),
        ([("x-api-key", "sk-2")], "", "sk-2"),
        ([("x-goog-api-key", "sk-3")], "", "sk-3"),
        ([], "alt=sse&key=sk%2B4", "sk+4"),
        ([("authorization", "Bearer sk-1"), ("x-api-key", "sk-2")], "key=sk-4", "sk-1"),
        ([("authorization", "Basic dXNlcg=="), ("x-api-key", "sk-2")], "", "sk-2"),
        ([("authorization", "Bearer ")], "key=", None),
        ([], "", None),
    ],
)
def test_a_key_is_found_wherever_an_api_puts_it(
    path: str, headers: list[tuple[str, str]], query: str, key: str | None
) -> None:
    """Every place counts on every API, because clients mix them."""
    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope: Scope = {"type": "http", "method": "POST", "path": path, "query_string": query.encode(), "headers": raw}
    assert client_key(Exchange(scope, _never, _nowhere, "req_1")) == key


def test_a_query_has_a_bound_whether_or_not_anybody_reads_it() -> None:
    """On every path."""
    assert _verdict("GET", ("host", "localhost"), query=b"a=" + b"x" * 8_000) is None
    assert _verdict("GET", ("host", "localhost"), query=b"a=" + b"x" * 9_000) == (414, "query_too_long")
