"""The server as a process: how it starts, what it says to broken HTTP, and how it leaves."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.server_process import BOUND_S, Served, served
from treadle.config import ServerSection
from treadle.core.errors import ConfigError
from treadle.server.server_process import Address, bind

JSON_TYPE = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests that only ask it things."""
    with served(tmp_path_factory.mktemp("server")) as running:
        yield running


def _raw(server: Served, request: bytes) -> tuple[int, bytes]:
    """Send bytes as they are and return status and the rest of the answer."""
    with socket.create_connection((server.host, server.port), timeout=BOUND_S) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    return int(answer.split(b" ", 2)[1]), answer


def _ask(connection: http.client.HTTPConnection, stream: bool, text: str = "What is the weather in Paris?") -> None:
    body = json.dumps({"model": "demo", "stream": stream, "input": text})
    connection.request("POST", "/v1/responses", body, JSON_TYPE)


def test_a_question_is_answered_over_the_network(server: Served) -> None:
    """The whole house in one process, from a socket to a socket."""
    with server.connect() as connection:
        _ask(connection, stream=True)
        answer = connection.getresponse()
        body = answer.read().decode()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert body.rstrip().split("\n\n")[-1].startswith("event: response.completed")
    assert answer.headers["server"] is None


def test_head_and_get_agree(server: Served) -> None:
    """HEAD has the headers of GET, its length included."""
    lengths: list[str | None] = []
    for method in ("HEAD", "GET"):
        with server.connect() as connection:
            connection.request(method, "/v1/models")
            answer = connection.getresponse()
            lengths.append(answer.headers["content-length"])
            answer.read()
    assert lengths[0] == lengths[1] is not None


def test_a_websocket_probe_is_sent_back_to_post(server: Served) -> None:
    """A handshake as clients send it gets 426 over the network too."""
    request = (
        b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade, close\r\nupgrade: websocket\r\n"
        b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n"
    )
    assert _raw(server, request)[0] == 426


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n", 403),
        (b"GET http://evil.example/ HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n", 403),
        (b"CONNECT evil.example:80 HTTP/1.1\r\nhost: evil.example:80\r\nconnection: close\r\n\r\n", 400),
        (b"GET /%00 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", 404),
        (b"GET /web/%2e%2e/app.py HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\nconnection: close\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\nconnection: close\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 70_000 + b"\r\nconnection: close\r\n\r\n", 431),
        (
            b"GET / HTTP/1.1\r\nhost: localhost\r\n"
            + b"".join(b"x-%d: 1\r\n" % number for number in range(10_000))
            + b"connection: close\r\n\r\n",
            431,
        ),
        (b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400),
        (
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 200000\r\nconnection: close\r\n\r\n",
            413,
        ),
        (
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n1D4C0\r\n" + b"x" * 120_000 + b"\r\n0\r\n\r\n",
            413,
        ),
        (
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\nzz\r\n",
            400,
        ),
        (
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n"
            b"connection: close\r\n\r\n{}",
            415,
        ),
    ],
    ids=[
        "no host",
        "wrong host",
        "absolute target",
        "connect",
        "nul in path",
        "encoded dots",
        "bare CR",
        "NUL in header",
        "64 KiB header",
        "10k headers",
        "two lengths",
        "length over cap",
        "chunked over cap",
        "bad chunk size",
        "text/plain",
    ],
)
def test_broken_http_gets_a_clear_status(server: Served, request_bytes: bytes, status: int) -> None:
    """Whatever comes in, an answer goes out and the process lives."""
    assert _raw(server, request_bytes)[0] == status
    with server.connect() as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200


def test_pipelined_requests_are_answered_in_order(server: Served) -> None:
    """Two requests in one packet get two answers."""
    one = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    last = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = _raw(server, one + last)[1]
    assert answer.index(b'{"status":"ok"}') < answer.index(b'"object":"list"')


def _until_unready(probe: http.client.HTTPConnection) -> None:
    """Wait until the server says that it is leaving."""
    while True:
        probe.request("GET", "/readyz")
        answer = probe.getresponse()
        said = json.loads(answer.read())
        if answer.status == 503:
            assert said == {"status": "unavailable", "reason": "shutting down"}
            return


@pytest.mark.slow
def test_a_running_stream_ends_by_itself_within_the_grace(tmp_path: Path) -> None:
    """After SIGTERM a run may finish; readiness is gone meanwhile, and the process leaves with code 0."""
    with (
        served(tmp_path, delay_s=0.2, grace_s=20.0) as server,
        server.connect() as connection,
        server.connect() as probe,
    ):
        _ask(connection, stream=True)
        answer = connection.getresponse()
        first = answer.readline()
        server.leave()
        _until_unready(probe)
        body = first + answer.read()
        assert b"event: response.completed" in body
        assert server.wait() == (0, "left\n")


@pytest.mark.slow
def test_a_stream_that_outlasts_the_grace_still_gets_its_end(tmp_path: Path) -> None:
    """The run is cancelled, the terminal event reaches the client, then the connection closes."""
    with served(tmp_path, delay_s=5.0, grace_s=0.1) as server, server.connect() as connection:
        body = json.dumps({"input": "What is the weather in Paris?", "stream": True})
        connection.request("POST", "/treadle/v1/runs", body, JSON_TYPE)
        answer = connection.getresponse()
        first = answer.readline()
        server.leave()
        events = (first + answer.read()).decode()
        assert '"code":"server_stopping"' in events.rstrip().split("\n\n")[-1]
        assert server.wait() == (0, "left\n")


@pytest.mark.slow
def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """Whoever asks twice means it: the grace is cut short, and the stream still gets its end."""
    with (
        served(tmp_path, delay_s=60.0, grace_s=600.0) as server,
        server.connect() as connection,
        server.connect() as probe,
    ):
        connection.request("POST", "/treadle/v1/runs", json.dumps({"input": "hi", "stream": True}), JSON_TYPE)
        answer = connection.getresponse()
        first = answer.readline()
        server.leave()
        _until_unready(probe)
        server.leave()
        assert b'"code":"server_stopping"' in first + answer.read()
        assert server.wait() == (0, "left\n")


def test_an_address_that_others_can_reach_needs_to_be_allowed() -> None:
    """Nobody opens the gateway to the network by accident."""
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(ConfigError) as caught:
            bind(ServerSection(host=host, port=0))
        assert caught.value.param == "server.host"
    bind(ServerSection(host="0.0.0.0", port=0, allow_remote=True)).close()


def test_a_port_in_use_is_a_clear_error() -> None:
    """The message names the address, the hint the way out."""
    with bind(ServerSection(port=0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            bind(ServerSection(port=port))
    assert caught.value.message == f"Cannot listen on 127.0.0.1 port {port}: Address already in use."


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8700"),
        ("0.0.0.0", "http://127.0.0.1:8700"),
        ("::", "http://[::1]:8700"),
        ("::1", "http://[::1]:8700"),
    ],
)
def test_the_announced_address_opens_in_a_browser(host: str, url: str) -> None:
    """A wildcard is not an address one can open."""
    assert Address(host=host, port=8700).url == url
