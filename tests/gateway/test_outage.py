"""Three real processes on a PostgreSQL that goes away: probes answer at once, requests soon, no client learns where.

The database stands behind a proxy that stops passing anything on: worse than a refusal, for nothing ends by itself.
"""

import asyncio
import http.client
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.server import Server, prepare
from postgres import postgres_server
from proxy import Proxy, proxy_before
from treadle.cli.main import main

BOUND_S = 60.0
PROBE_S = 0.5
"""What a probe may take on a machine that does much else; without a database in the way it takes a millisecond."""
REFUSED_S = 5.0
"""How soon the first request after a partition is refused, as docs/reliability.md promises."""
SECRET = {"TREADLE_SECRET": "s" * 40}
CONFIG = '[keys]\nrequired = "always"\n[server]\nlogin = "always"\n'
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "demo", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "demo", "input": "hi"},
    "/v1/messages": {"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "/v1beta/models/demo:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "/treadle/v1/runs": {"input": "hi"},
}


class Answer(msgspec.Struct):
    """What a server answered, and how long that took."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


def ask(
    server: Server, method: str, path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> Answer:
    """Send a request and return the whole answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_S)
    began = time.monotonic()
    try:
        sent = {**({"content-type": "application/json"} if body is not None else {}), **(headers or {})}
        connection.request(method, path, None if body is None else msgspec.json.encode(body), sent)
        found = connection.getresponse()
        said = found.read()
        head = {name.lower(): value for name, value in found.getheaders()}
        return Answer(found.status, head, said, time.monotonic() - began)
    finally:
        connection.close()


async def until(wanted: Callable[[], bool]) -> None:
    """Wait until something is so, asked in a thread."""
    async with asyncio.timeout(BOUND_S):
        while not await asyncio.to_thread(wanted):  # noqa: ASYNC110 another process gives no event
            await asyncio.sleep(0.05)


class Place:
    """Three servers behind a proxy to PostgreSQL, and a key of an operator."""

    def __init__(self, proxy: Proxy, servers: list[Server], key: str, words: tuple[str, ...]) -> None:
        self.proxy = proxy
        self.servers = servers
        self.known = {"authorization": f"Bearer {key}"}
        self.words = words


@pytest.fixture
async def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Place]:
    """Yield the servers, running, and leave none of them behind."""
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    prepare(tmp_path, 0.0)
    (tmp_path / "treadle.toml").write_text(CONFIG)
    async with proxy_before(postgres_server().socket_folder) as proxy:
        direct = postgres_server().url()
        store = direct.replace(str(postgres_server().socket_folder), str(proxy.folder))
        made = ["keys", "create", "ops", "--role", "admin", "--json", "--store", direct]
        assert await asyncio.to_thread(main, made) == 0
        key = json.loads(capsys.readouterr().out)["key"]
        flags = ("--config", str(tmp_path / "treadle.toml"))
        started = [Server(tmp_path, store, *flags, env=SECRET) for _ in range(3)]
        try:
            for server in started:
                await asyncio.to_thread(server.open)
            yield Place(proxy, started, key, (str(proxy.folder), "postgres", "treadle@", "PGSQL"))
        finally:
            for server in started:
                server.kill()


async def test_probes_answer_at_once_and_requests_soon(place: Place) -> None:
    """Before, during and after a partition; the first refusal comes within the promised time, and names no address."""

    def every(method: str, path: str) -> list[Answer]:
        return [ask(server, method, path, headers=place.known) for server in place.servers]

    for path in ("/healthz", "/readyz", "/metrics"):
        assert [each.status for each in await asyncio.to_thread(every, "GET", path)] == [200, 200, 200]
    place.proxy.stand_still()
    first = await asyncio.gather(
        *(
            asyncio.to_thread(ask, place.servers[n % 3], "POST", path, body, place.known)
            for n, (path, body) in enumerate(ASKED.items())
        ),
        *(asyncio.to_thread(ask, server, "GET", path) for server in place.servers for path in ("/healthz", "/readyz")),
    )
    refused, probes = first[: len(ASKED)], first[len(ASKED) :]
    assert [(each.status, each.headers.get("retry-after")) for each in refused] == [(503, "1")] * len(ASKED)
    assert max(each.seconds for each in refused) < REFUSED_S
    assert max(each.seconds for each in probes) < PROBE_S

    await until(lambda: [each.status for each in every("GET", "/readyz")] == [503, 503, 503])
    away = [*await asyncio.to_thread(every, "GET", "/readyz"), *await asyncio.to_thread(every, "GET", "/healthz")]
    assert [each.status for each in away] == [503, 503, 503, 200, 200, 200]
    counted = await asyncio.to_thread(every, "GET", "/metrics")
    assert [each.status for each in counted] == [200, 200, 200]
    assert all(b"\ntreadle_store_up 0.0\n" in each.body for each in counted)
    # The first scrape may wait a moment for the key; nothing else waits at all.
    assert max(each.seconds for each in away) < PROBE_S
    assert max(each.seconds for each in counted) < PROBE_S + 0.5
    chat = ASKED["/v1/chat/completions"]

    def are_quick() -> bool:
        every_one = [ask(each, "POST", "/v1/chat/completions", chat, place.known) for each in place.servers]
        return max(each.seconds for each in every_one) < PROBE_S

    await until(are_quick)
    known = [
        await asyncio.to_thread(ask, server, "POST", path, body, place.known)
        for server in place.servers
        for path, body in ASKED.items()
    ]
    assert {each.status for each in known} == {503}
    assert max(each.seconds for each in known) < PROBE_S
    told = b"".join(each.body for each in (*refused, *away, *known)).decode()
    assert [word for word in place.words if word in told] == []

    place.proxy.go_on()
    await until(lambda: [each.status for each in every("GET", "/readyz")] == [200, 200, 200])
    again = [
        await asyncio.to_thread(ask, server, "POST", "/v1/responses", ASKED["/v1/responses"], place.known)
        for server in place.servers
    ]
    assert [each.status for each in again] == [200, 200, 200]
