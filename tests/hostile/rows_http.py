"""Requests that are no good HTTP, byte by byte."""

import gzip
from collections.abc import Callable, Iterator

from hostile.house import MEBIBYTE, RECEIVE_TIMEOUT_S
from hostile.table import APIS, VENDORS, Row, Scene, check_refusal, several

HOST = b"host: localhost\r\n"
JSON = b"content-type: application/json\r\n"
LAST = b"connection: close\r\n"


def post(api: str, headers: bytes, body: bytes = b"") -> bytes:
    """Write a POST as it goes over the wire."""
    path = APIS[api].path.replace("MODEL", "good").encode()
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + JSON + headers + b"\r\n" + body


def get(path: bytes, headers: bytes = HOST + LAST) -> bytes:
    """Write a GET as it goes over the wire."""
    return b"GET " + path + b" HTTP/1.1\r\n" + headers + b"\r\n"


def broken(
    make: Callable[[str], bytes], status: int, code: str, more: Callable[[], Iterator[bytes]] | None = None
) -> Callable[[Scene], None]:
    """Return the attempt that sends bytes to every vendor's API."""

    def tries(scene: Scene) -> None:
        before = len(scene.received)
        for api in VENDORS:
            answer = scene.house.raw(make(api), more=more() if more else None)
            check_refusal(api, answer, status, code)
        assert len(scene.received) == before

    return tries


def plain(request: bytes, status: int, code: str, api: str = "treadle") -> Callable[[Scene], None]:
    """Return the attempt that sends bytes once."""

    def tries(scene: Scene) -> None:
        check_refusal(api, scene.house.raw(request), status, code)

    return tries


def short_length(scene: Scene) -> None:
    """Say less than is sent: the rest must never become a request of its own."""
    whole = APIS["chat"].body()
    answer = scene.house.raw(post("chat", b"content-length: %d\r\n" % (len(whole) - 5), whole))
    assert answer.status == 400, answer.text
    smuggled = post("chat", b"content-length: 2\r\n", b"{}" + get(b"/v1/models"))
    assert scene.house.raw(smuggled).status == 400


def slow(parts: bytes, status: int = 408) -> Callable[[Scene], None]:
    """Return the attempt that stops in the middle and waits."""

    def tries(scene: Scene) -> None:
        check_refusal("chat", scene.house.raw(parts), status, "request_timeout")

    return tries


def pipelined(scene: Scene) -> None:
    """Send forty requests at once on one connection: each gets its answer, in order."""
    one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    two = b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n"
    import socket

    with socket.create_connection((scene.house.host, scene.house.port), timeout=20) as connection:
        connection.sendall((one + two) * 20 + get(b"/healthz"))
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404"] * 20 + [b"200"]


def gzip_bomb(scene: Scene) -> None:
    """Send a megabyte that would be a gigabyte: it is not unpacked at all."""
    bomb = gzip.compress(b" " * (64 * MEBIBYTE), 9)
    for api in VENDORS:
        request = post(api, b"content-encoding: gzip\r\ncontent-length: %d\r\n" % len(bomb), bomb)
        check_refusal(api, scene.house.raw(request), 415, "unsupported_encoding")


ENDLESS = b"100000\r\n" + b"x" * MEBIBYTE + b"\r\n"
ROWS = (
    Row(
        id="http.length_over_cap",
        comes="refused",
        why="the declared length alone is enough; nothing is read",
        tries=broken(lambda api: post(api, b"content-length: 99999999999\r\n"), 413, "request_too_large"),
    ),
    Row(
        id="http.chunked_over_cap",
        comes="refused",
        why="counted while it comes, and read no further than the cap",
        tries=broken(
            lambda api: post(api, b"transfer-encoding: chunked\r\n"),
            413,
            "request_too_large",
            lambda: (ENDLESS for _ in range(34)),
        ),
        peak_bytes_max=128 * MEBIBYTE,
    ),
    Row(id="http.length_below_body", comes="refused", why="the rest is no request", tries=short_length),
    Row(
        id="http.length_above_body",
        comes="refused",
        why="a body that does not come in time is not waited for",
        tries=slow(post("chat", b"content-length: 500\r\n", APIS["chat"].body())),
    ),
    Row(
        id="http.slow_headers",
        comes="refused",
        why=f"the head has {RECEIVE_TIMEOUT_S:g} s here, a minute by default",
        tries=slow(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local"),
    ),
    Row(
        id="http.slow_body",
        comes="refused",
        why="the body has the same time, whatever trickles in meanwhile",
        tries=slow(post("chat", b"content-length: 60\r\n", b"{")),
    ),
    Row(
        id="http.length_and_transfer_encoding",
        comes="refused",
        why="two lengths are how requests are smuggled",
        tries=broken(
            lambda api: post(api, b"content-length: 5\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n"),
            400,
            "invalid_http",
        ),
    ),
    Row(
        id="http.duplicate_length",
        comes="refused",
        why="also when both say the same",
        tries=several(
            broken(lambda api: post(api, b"content-length: 2\r\ncontent-length: 3\r\n", b"{}"), 400, "invalid_http"),
            broken(lambda api: post(api, b"content-length: 2\r\ncontent-length: 2\r\n", b"{}"), 400, "invalid_http"),
        ),
    ),
    Row(
        id="http.bad_chunk_size",
        comes="refused",
        why="it is not a number",
        tries=broken(lambda api: post(api, b"transfer-encoding: chunked\r\n", b"zz\r\n"), 400, "invalid_http"),
    ),
    Row(id="http.gzip_bomb", comes="refused", why="bodies are never unpacked", tries=gzip_bomb),
    Row(
        id="http.unknown_encoding",
        comes="refused",
        why="nobody knows what it says",
        tries=broken(
            lambda api: post(api, b"content-encoding: zork\r\ncontent-length: 2\r\n", b"{}"),
            415,
            "unsupported_encoding",
        ),
    ),
    Row(
        id="http.header_64_kib",
        comes="refused",
        why="all headers together have 64 KiB, the whole head 128",
        tries=several(
            broken(lambda api: post(api, b"x: " + b"a" * 65_536 + b"\r\n"), 431, "headers_too_large"),
            broken(
                lambda api: post(api, b"x: ")[:-2],
                431,
                "headers_too_large",
                lambda: (b"a" * 65_536 for _ in range(160)),
            ),
        ),
    ),
    Row(
        id="http.headers_10k",
        comes="refused",
        why="there are at most 128",
        tries=broken(
            lambda api: post(api, b"".join(b"x-%d: 1\r\n" % n for n in range(10_000))), 431, "headers_too_large"
        ),
    ),
    Row(
        id="http.cr_or_nul_in_header",
        comes="refused",
        why="a header ends at CRLF and nowhere else",
        tries=several(
            broken(lambda api: post(api, b"x: a\rb\r\n"), 400, "invalid_http"),
            broken(lambda api: post(api, b"x: a\0b\r\n"), 400, "invalid_http"),
        ),
    ),
    Row(
        id="http.connect_or_absolute_target",
        comes="refused",
        why="this is no proxy",
        tries=several(
            plain(b"CONNECT evil.example:80 HTTP/1.1\r\nhost: evil.example:80\r\n\r\n", 400, "invalid_http"),
            plain(get(b"http://evil.example/", b"host: evil.example\r\n" + LAST), 403, "host_not_allowed"),
        ),
    ),
    Row(
        id="http.nul_or_dots_in_path",
        comes="refused",
        why="no path leads out of the table of routes or the folder of pages",
        tries=several(
            plain(get(b"/v1/models/%00"), 404, "model_not_found", "chat"),
            plain(get(b"/web/%2e%2e/%2e%2e/app.py"), 404, "not_found"),
            plain(get(b"/web/..%2f..%2fapp.py"), 404, "not_found"),
            plain(get(b"/treadle/v1/runs/%00"), 404, "not_found"),
        ),
    ),
    Row(
        id="http.query_1_mb",
        comes="refused",
        why="a query has 8 KiB on every path",
        tries=several(
            plain(get(b"/v1/models?key=" + b"a" * 1_000_000), 414, "path_too_long", "chat"),
            plain(get(b"/healthz?a=" + b"a" * 10_000), 414, "query_too_long"),
        ),
    ),
    Row(id="http.pipelining", comes="accepted", why="HTTP/1.1 allows it; answers keep their order", tries=pipelined),
    Row(
        id="http.no_host",
        comes="refused",
        why="without it a rebound name could not be told",
        tries=several(
            plain(get(b"/v1/models", LAST), 400, "invalid_host", "chat"),
            plain(get(b"/v1/models", b"host: evil.example\r\n" + LAST), 403, "host_not_allowed", "chat"),
        ),
    ),
    Row(
        id="http.wrong_content_type",
        comes="refused",
        why="a form of another site's page is a body that is not JSON",
        tries=broken(
            lambda api: post(api, b"content-length: 2\r\n", b"{}").replace(b"application/json", b"text/plain"),
            415,
            "unsupported_media_type",
        ),
    ),
)
