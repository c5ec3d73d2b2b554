"""A run is ended from every side: its connection, its API, Treadle's own. One end, whatever races."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest

from gateway.apis import APIS, BOUND_S
from gateway.gateway import Gateway
from person import person_headers
from treadle.config import Route, ServerSection
from treadle.core.errors import StoreError
from treadle.journal.journal_interface import RunRow
from treadle.journal.write_futures import failed
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.tools import tool

ANSWER = "It is 17 °C in Paris, and it will stay so until the evening. "
SLOW = Script(turns=(ScriptTurn(text=ANSWER, faults=Faults(stall_s=60.0)),))


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose model falls silent half-way, until it is released."""
    with Gateway(SLOW, tmp_path, chunk_bytes=64) as gateway:
        yield gateway


def _leave(gateway: Gateway, api: str, *, stream: bool, headers: dict[str, str] | None = None) -> None:
    """Ask, and hang up once the model has been asked."""
    asked = APIS[api]
    host = gateway.origin.removeprefix("http://")
    with closing(HTTPConnection(host, timeout=BOUND_S)) as connection:
        path = asked.stream_path if stream else asked.path
        body = msgspec.json.encode(asked.content(stream=stream))
        connection.request("POST", path, body, {"content-type": "application/json", **(headers or {})})
        gateway.ask(_asked(gateway))


async def _asked(gateway: Gateway) -> None:
    while not gateway.upstream.received:
        await gateway.runtime.clock.sleep(0.001)


async def _ended(gateway: Gateway) -> RunRow:
    """Wait for the end of the only run."""
    while True:
        rows = await gateway.runtime.store.list_runs(limit=2)
        if rows and rows[0].ended_at is not None:
            (row,) = rows
            return row
        await asyncio.sleep(0.002)


def _release(gateway: Gateway) -> None:
    gateway.loop.call_soon_threadsafe(gateway.upstream.release.set)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_client_that_goes_away_ends_its_run(slow: Gateway, api: str, stream: bool) -> None:
    """The upstream's connection is closed, and the journal says what happened."""
    _leave(slow, api, stream=stream)
    slow.ask(slow.upstream.disconnected.wait())
    row = slow.ask(_ended(slow))
    assert (row.status, row.error) == ("cancelled", None)


@pytest.mark.parametrize("size", [1_000, 100_000, 1_000_000])
def test_a_client_that_sent_much_and_goes_away_ends_its_run_too(slow: Gateway, size: int) -> None:
    """The reading of a connection pauses while its body is large: it must go on, or nobody hears of the end."""
    body = APIS["chat"].content(stream=False)
    body["messages"][-1]["content"] = "x" * size
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
    address = urlsplit(slow.origin)
    with socket.create_connection((address.hostname, address.port), timeout=BOUND_S) as client:
        client.sendall(head.encode())
        client.sendall(data)
        slow.ask(_asked(slow))
    slow.ask(slow.upstream.disconnected.wait())
    assert slow.ask(_ended(slow)).status == "cancelled"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_run_may_go_on_without_its_client(slow: Gateway, api: str, stream: bool) -> None:
    """Asked for by a header, for this request alone."""
    _leave(slow, api, stream=stream, headers={"x-treadle-on-disconnect": "continue"})
    _release(slow)
    assert slow.ask(_ended(slow)).status == "completed"


@pytest.mark.parametrize("how", ["server", "route"])
def test_runs_may_go_on_by_configuration(tmp_path: Path, how: str) -> None:
    """For the whole server, or for the models of a route; the header has the last word."""
    server = ServerSection(on_disconnect="continue") if how == "server" else ServerSection()
    route = (Route(model="scr*", upstream="script", on_disconnect="continue"),) if how == "route" else ()
    with Gateway(SLOW, tmp_path, server=server, route=route) as gateway:
        _leave(gateway, "chat", stream=True)
        _release(gateway)
        assert gateway.ask(_ended(gateway)).status == "completed"


def test_a_route_may_end_what_the_server_lets_go_on(tmp_path: Path) -> None:
    """The route is nearer."""
    server = ServerSection(on_disconnect="continue")
    route = (Route(model="*", upstream="script", on_disconnect="cancel"),)
    with Gateway(SLOW, tmp_path, server=server, route=route) as gateway:
        _leave(gateway, "chat", stream=True)
        assert gateway.ask(_ended(gateway)).status == "cancelled"


def test_the_header_overrules_the_configuration(tmp_path: Path) -> None:
    """Also towards ending it."""
    with Gateway(SLOW, tmp_path, server=ServerSection(on_disconnect="continue")) as gateway:
        _leave(gateway, "chat", stream=True, headers={"x-treadle-on-disconnect": "cancel"})
        assert gateway.ask(_ended(gateway)).status == "cancelled"


@pytest.mark.parametrize("api", APIS)
def test_an_unknown_wish_is_refused_by_name(slow: Gateway, api: str) -> None:
    """Nothing is started."""
    asked = APIS[api]
    headers = {"x-treadle-on-disconnect": "maybe"}
    refused = httpx2.post(asked.url(slow, stream=False), json=asked.content(stream=False), headers=headers)
    assert (refused.status_code, "x-treadle-on-disconnect" in refused.text) == (400, True)
    assert slow.upstream.received == []


def test_one_of_two_readers_may_leave(slow: Gateway) -> None:
    """The run goes on as long as anybody reads it."""
    key = {"idempotency-key": "one", "x-treadle-on-disconnect": "cancel"}
    asked = APIS["chat"]
    url, body = asked.url(slow, stream=True), asked.content(stream=True)
    with httpx2.stream("POST", url, json=body, headers=key, timeout=BOUND_S) as stays:
        with httpx2.stream("POST", url, json=body, headers=key, timeout=BOUND_S) as leaves:
            assert leaves.headers["x-treadle-run"] == stays.headers["x-treadle-run"]
        _release(slow)
        assert stays.read().endswith(b"data: [DONE]\n\n")
    assert slow.ask(_ended(slow)).status == "completed"


@pytest.mark.parametrize("api", APIS)
def test_a_run_is_ended_by_treadles_own_api(slow: Gateway, api: str) -> None:
    """The client that reads it hears of it, and a second cancel changes nothing."""
    asked = APIS[api]
    with httpx2.stream(
        "POST", asked.url(slow, stream=True), json=asked.content(stream=True), timeout=BOUND_S
    ) as response:
        run_id = response.headers["x-treadle-run"]
        slow.ask(_asked(slow))
        first = httpx2.post(f"{slow.origin}/treadle/v1/runs/{run_id}/cancel", json={}, headers=person_headers())
        second = httpx2.post(f"{slow.origin}/treadle/v1/runs/{run_id}/cancel", json={}, headers=person_headers())
        response.read()
    assert (first.status_code, first.json()["status"]) == (200, "cancelled")
    assert second.json() == first.json()
    slow.ask(slow.upstream.disconnected.wait())


def test_an_open_call_gets_its_result_and_the_run_one_end(tmp_path: Path) -> None:
    """A tool that runs when its client leaves is stopped, and the next turn reads what became of it."""
    began = threading.Event()

    @tool(effect="write", timeout_s=60)
    async def wait_long() -> str:
        """Wait."""
        began.set()
        await asyncio.sleep(60)
        return "never"

    script = Script(turns=(ScriptTurn(calls=(ReplyCall(name="wait_long", id="call_1"),)), ScriptTurn(text="Well.")))
    with Gateway(script, tmp_path, tools=(wait_long,)) as gateway:
        asked = APIS["responses"]
        body = asked.content(stream=True, background=True)
        with httpx2.stream("POST", asked.url(gateway, stream=True), json=body, timeout=BOUND_S) as response:
            run_id = response.headers["x-treadle-run"]
            assert began.wait(BOUND_S)
            cancels = [_cancel_in_thread(gateway, run_id) for _ in range(4)]
            for thread in cancels:
                thread.join(BOUND_S)
            response.read()
        row = gateway.ask(_ended(gateway))
        entries = gateway.ask(gateway.runtime.store.entries(run_id))
    assert row.status == "cancelled"
    assert [entry.kind for entry in entries].count("tool_result") == 1
    assert [entry.content for entry in entries if entry.kind == "status"] == ["running", "cancelled"]


def _cancel_in_thread(gateway: Gateway, run_id: str) -> threading.Thread:
    url = f"{gateway.origin}/treadle/v1/runs/{run_id}/cancel"
    thread = threading.Thread(
        target=httpx2.post, args=(url,), kwargs={"json": {}, "headers": person_headers(), "timeout": BOUND_S}
    )
    thread.start()
    return thread


@pytest.mark.parametrize("api", APIS)
def test_a_store_that_is_gone_is_a_503_with_a_time_to_come_back(
    slow: Gateway, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail closed, in the envelope of the API: without a journal nothing is started."""

    def broken(*_: Any, **__: Any) -> Any:
        return failed(StoreError("The database does not answer."))

    monkeypatch.setattr(slow.runtime.store, "start_run", broken)
    asked = APIS[api]
    refused = httpx2.post(asked.url(slow, stream=True), json=asked.content(stream=True), timeout=BOUND_S)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "The journal cannot be reached just now." in refused.text
    assert "The database does not answer." not in refused.text, "the driver's words are for operators"
    assert ({"chat", "responses"} & {api} == set()) or refused.json()["error"]["code"] == "store_unavailable"
    assert slow.upstream.received == []
