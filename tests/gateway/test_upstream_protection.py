"""Retries, fallbacks and the breaker as clients meet them, over real HTTP on both sides."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai
import pytest

from gateway.gateway import Gateway
from treadle import tool
from treadle.config import Upstream
from treadle.config.settings import Route, UpstreamsSection
from treadle.providers.fakes.fake_server import ScriptServer
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall

DOWN = ScriptTurn(text="", faults=Faults(status=503, message="overloaded"))
WELL = ScriptTurn(text="All is well.")
QUICK = UpstreamsSection(backoff_s=0.0)


def ask(gateway: Gateway, **fields: Any) -> httpx2.Response:
    """Ask for an answer in one piece."""
    body = {"model": "script", "messages": [{"role": "user", "content": "hi"}], **fields}
    return httpx2.post(f"{gateway.url}/chat/completions", json=body, timeout=30)


def said(response: httpx2.Response) -> str:
    """Return what the model said."""
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


@contextmanager
def other(*turns: ScriptTurn) -> Iterator[ScriptServer]:
    """Run a second scripted upstream beside the gateway's own."""
    ready, servers = threading.Event(), []
    ended: asyncio.Event
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        nonlocal ended
        ended = asyncio.Event()
        async with ScriptServer(Script(turns=turns)) as server:
            servers.append(server)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(lambda: ended.set())
        thread.join(10)
        loop.close()


def with_other(gateway: Gateway, url: str, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """Let the gateway fall back on a second upstream, which calls the model otherwise."""
    plain = gateway._settings
    second = Upstream(name="spare", base_url=url)
    route = Route(model="script", upstream="script", fallback=("spare/other-model",))

    def both(first_url: str) -> Any:

        settings = plain(first_url)
        return msgspec.structs.replace(settings, upstream=(*settings.upstream, second), route=(route,))

    monkeypatch.setattr(gateway, "_settings", both)
    return gateway


@pytest.mark.parametrize("stream", [False, True])
def test_a_busy_upstream_is_asked_again_and_the_client_only_sees_the_answer(tmp_path: Path, stream: bool) -> None:
    """Two refusals and an answer; the run says that it was so."""
    with Gateway(Script(turns=(DOWN, DOWN, WELL)), tmp_path, upstreams=QUICK) as gateway:
        client = openai.OpenAI(base_url=gateway.url, api_key="none", max_retries=0)
        messages: Any = [{"role": "user", "content": "hi"}]
        if stream:
            chunks = client.chat.completions.create(model="script", messages=messages, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        else:
            text = client.chat.completions.create(model="script", messages=messages).choices[0].message.content
        runs = httpx2.get(f"{gateway.origin}/treadle/v1/runs").json()["runs"]
        health = httpx2.get(f"{gateway.origin}/treadle/v1/upstreams").json()["upstreams"]
        metrics = httpx2.get(f"{gateway.origin}/metrics").text
    assert text == "All is well."
    assert len(runs) == 1
    assert (health[0]["calls"], health[0]["failures"], health[0]["breaker"]) == (3, 2, "closed")
    assert "overloaded" in health[0]["last_error"]
    assert 'treadle_upstream_retries_total{upstream="script",where="there"} 2.0' in metrics


def test_a_tool_that_ran_is_not_run_again_because_the_next_model_call_was_refused(tmp_path: Path) -> None:
    """The retry is of one model call, not of the run."""

    ran: list[str] = []

    @tool
    def note(text: str) -> str:
        """Note something."""
        ran.append(text)
        return "noted"

    call = ScriptTurn(calls=(ReplyCall(name="note", args={"text": "a"}),))
    with Gateway(Script(turns=(call, DOWN, WELL)), tmp_path, tools=[note], upstreams=QUICK) as gateway:
        assert said(ask(gateway)) == "All is well."
    assert ran == ["a"]


def test_the_fallback_of_a_route_answers_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first upstream is down, the second is asked for the model it knows, and the run notes it."""
    with other(WELL) as spare:
        gateway = Gateway(Script(turns=(DOWN,)), tmp_path, upstreams=UpstreamsSection(retries=0))
        with with_other(gateway, spare.url, monkeypatch):
            response = ask(gateway)
            assert said(response) == "All is well."
        assert b"other-model" in spare.received[0].body


def test_an_answer_that_broke_off_is_an_error_and_nobody_else_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second answer would be a second text, once there was one; a client that waits has seen none."""
    cut = ScriptTurn(text="a long enough answer to be cut", faults=Faults(disconnect_after=400))
    with other(WELL) as spare:
        gateway = Gateway(Script(turns=(cut, cut)), tmp_path, upstreams=QUICK)
        with with_other(gateway, spare.url, monkeypatch):
            assert '"code":"upstream_broken_stream"' in ask(gateway, stream=True).text
            assert not spare.received
            assert said(ask(gateway)) == "All is well."
        assert len(spare.received) == 1


def test_an_upstream_that_is_down_is_left_alone_and_the_client_is_told_when_to_come_back(tmp_path: Path) -> None:
    """503 with retry-after, without asking it; the process stays ready and says which upstream is out."""
    rules = UpstreamsSection(retries=0, breaker_calls=2, breaker_open_s=30.0)
    with Gateway(Script(turns=(DOWN, DOWN, WELL)), tmp_path, upstreams=rules) as gateway:
        # Different requests: one that fails every time may be to blame itself, and counts once.
        assert [ask(gateway, temperature=n).status_code for n in (0, 1)] == [503, 503]
        response = ask(gateway)
        ready = httpx2.get(f"{gateway.origin}/readyz")
        asked = len(gateway.upstream.received)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "upstream_circuit_open"
    assert 1 <= int(response.headers["retry-after"]) <= 30
    assert asked == 2
    assert (ready.status_code, ready.json()["upstreams"]) == (200, {"script": "open"})


def test_one_client_s_bad_request_does_not_shut_out_the_others(tmp_path: Path) -> None:
    """A request that the upstream answers with 500 each time is refused each time, and others are served."""
    bad = ScriptTurn(text="", faults=Faults(status=500, message="the template failed"))
    rules = UpstreamsSection(retries=2, backoff_s=0.0, breaker_calls=2)
    with Gateway(Script(turns=(*[bad] * 9, WELL)), tmp_path, upstreams=rules) as gateway:
        assert [ask(gateway).status_code for _ in range(3)] == [502] * 3
        assert len(gateway.upstream.received) == 9
        assert said(ask(gateway, temperature=1)) == "All is well."


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}], ids=["absent", "null", "empty"])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("responses", {"input": "hi"}),
        ("messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}),
    ],
    ids=["chat", "responses", "messages"],
)
def test_a_request_without_a_model_is_answered_by_the_default_model(
    tmp_path: Path, path: str, fields: dict[str, Any], model: dict[str, Any]
) -> None:
    """As docs/configuration.md promises for `default_model`."""
    with Gateway(Script(turns=(WELL,)), tmp_path, default_model="usual") as gateway:
        response = httpx2.post(f"{gateway.url}/{path}", json={**model, **fields}, timeout=30)
        assert response.status_code == 200, response.text
        assert msgspec.json.decode(gateway.upstream.received[0].body)["model"] == "usual"


def test_a_provider_that_asks_for_an_hour_is_not_waited_for(tmp_path: Path) -> None:
    """Its 429 and its retry-after reach the client at once."""
    refused = ScriptTurn(text="", faults=Faults(status=429, message="quota", retry_after_s=3600))
    with Gateway(Script(turns=(refused, WELL)), tmp_path, upstreams=QUICK) as gateway:
        response = ask(gateway)
        assert len(gateway.upstream.received) == 1
    assert response.status_code == 429
    assert response.headers["retry-after"] == "3600"
