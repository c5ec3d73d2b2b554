"""A retry is not a second run: requests under one Idempotency-Key are answered by one run, on every API."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx2
import openai
import pytest

from gateway.apis import APIS, BOUND_S, post, text_of
from gateway.gateway import Gateway
from treadle.config import ServerSection
from treadle.journal.audit_verification import audit_run
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.tools import tool
from treadle.tools.demo_tools import DEMO_TOOLS

PARIS = ReplyCall(name="get_weather", args={"city": "Paris"}, id="call_paris")
ANSWER = "It is 17 °C in Paris."
ROUNDS = Script(turns=(ScriptTurn(calls=(PARIS,)), ScriptTurn(text=ANSWER)))
KEY = {"idempotency-key": "one"}
MANY = 100


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose script has two turns only: a second run would be found out."""
    with Gateway(ROUNDS, tmp_path, tools=DEMO_TOOLS) as gateway:
        yield gateway


async def _ask_often(gateway: Gateway, api: str, *, stream: bool) -> list[tuple[int, str, bytes]]:
    asked = APIS[api]
    connector = aiohttp.TCPConnector(limit=MANY)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask() -> tuple[int, str, bytes]:
            url, body = asked.url(gateway, stream=stream), asked.content(stream=stream)
            async with session.post(url, json=body, headers=KEY) as answer:
                return answer.status, answer.headers["x-treadle-run"], await answer.read()

        return await asyncio.gather(*(ask() for _ in range(MANY)))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_hundred_requests_under_one_key_are_one_run(rounds: Gateway, api: str, stream: bool) -> None:
    """All get the same bytes, and the model and the tool were asked once."""
    answers = asyncio.run(_ask_often(rounds, api, stream=stream))
    assert len(set(answers)) == 1
    status, _, body = answers[0]
    assert (status, ANSWER in (text_of(api, body) if stream else body.decode())) == (200, True)
    assert len(rounds.upstream.received) == 2
    assert len(rounds.ask(rounds.runtime.store.list_runs(limit=10))) == 1


CODES: dict[str, Any] = {
    "chat": lambda error: error["error"]["code"],
    "responses": lambda error: error["error"]["code"],
    "messages": lambda error: {"conflict_error": "idempotency_key_reused"}.get(error["error"]["type"]),
    "gemini": lambda error: {"ABORTED": "idempotency_key_reused"}.get(error["error"]["status"]),
}


@pytest.mark.parametrize("api", APIS)
def test_another_request_under_the_key_is_a_conflict(rounds: Gateway, api: str) -> None:
    """In the envelope of the API, and no SDK shall try it again."""
    assert post(rounds, api, headers=KEY).status_code == 200
    asked = APIS[api]
    other = httpx2.post(asked.url(rounds, stream=False), json={**asked.content(stream=False), "seed": 7}, headers=KEY)
    assert (other.status_code, other.headers["x-should-retry"]) == (409, "false")
    assert CODES[api](other.json()) == "idempotency_key_reused"
    if asked.stream_field:
        assert post(rounds, api, stream=True, headers=KEY).status_code == 409


@pytest.mark.parametrize("api", APIS)
def test_how_the_json_is_spelled_does_not_matter(rounds: Gateway, api: str) -> None:
    """Spaces and the order of fields are not what was asked; a path without its version is the same path."""
    first = post(rounds, api, headers=KEY)
    asked = APIS[api]
    body = json.dumps(dict(reversed(asked.content(stream=False).items())), indent=3)
    headers = {**KEY, "content-type": "application/json"}
    url = asked.url(rounds, stream=False)
    again = httpx2.post(url if api == "gemini" else url.replace("/v1/", "/"), content=body, headers=headers)
    assert (again.status_code, again.content) == (200, first.content)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "é"])
def test_a_key_that_is_none_is_refused_by_name(rounds: Gateway, api: str, key: str) -> None:
    """Too short, too long, or not printable."""
    asked = APIS[api]
    headers = [(b"idempotency-key", key.encode("latin-1"))]
    refused = httpx2.post(asked.url(rounds, stream=False), json=asked.content(stream=False), headers=headers)
    assert (refused.status_code, "Idempotency-Key" in refused.text) == (400, True)
    assert rounds.upstream.received == []


def test_the_longest_key_is_taken(rounds: Gateway) -> None:
    """255 characters, as elsewhere."""
    first, second = (post(rounds, "chat", headers={"idempotency-key": "k" * 255}) for _ in range(2))
    assert (first.status_code, first.content) == (200, second.content)


def test_the_openai_sdk_attaches_by_a_key_of_its_callers(rounds: Gateway) -> None:
    """A program that gives its request a key may repeat it as it likes."""
    with openai.OpenAI(base_url=rounds.url, api_key="x") as sdk:
        answers = [
            sdk.responses.create(model="script", input="Weather?", extra_headers={"Idempotency-Key": "mine"})
            for _ in range(3)
        ]
    assert len({answer.to_json() for answer in answers}) == 1
    assert answers[0].output_text == ANSWER


def test_a_failed_run_fails_again_under_its_key(tmp_path: Path) -> None:
    """Once a tool has run the failure says that trying again is no good, to whoever attaches too."""
    script = Script(turns=(ScriptTurn(calls=(PARIS,)), ScriptTurn(faults=Faults(status=503))))
    with Gateway(script, tmp_path, tools=DEMO_TOOLS) as gateway:
        answers = [post(gateway, "chat", headers=KEY) for _ in range(2)]
        asked = len(gateway.upstream.received)
    assert [(answer.status_code, answer.headers["x-should-retry"]) for answer in answers] == [(503, "false")] * 2
    assert answers[0].json() == answers[1].json()
    assert asked >= 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_run_that_failed_for_nothing_is_tried_again_under_its_key(tmp_path: Path, api: str, stream: bool) -> None:
    """The server stopped under it, and its client was told to try again: that must help, and it helps once."""
    body = APIS[api].content(stream=stream)
    headers = {**KEY, "x-treadle-on-disconnect": "continue"}
    with Gateway(Script(turns=(ScriptTurn(text=ANSWER, faults=Faults(stall_s=60.0)),)), tmp_path) as gateway:
        answers: list[httpx2.Response] = []
        url = APIS[api].url(gateway, stream=stream)
        asking = threading.Thread(
            target=lambda: answers.append(httpx2.post(url, json=body, headers=headers, timeout=BOUND_S))
        )
        asking.start()
        gateway.ask(_until_asked(gateway))
        gateway.ask(gateway.runtime.runs.close())
        asking.join(BOUND_S)
    [stopped] = answers
    assert b"server is stopping" in stopped.content
    assert "x-should-retry" not in stopped.headers
    with Gateway(Script(turns=(ScriptTurn(text=ANSWER),)), tmp_path) as gateway:
        url = APIS[api].url(gateway, stream=stream)
        again, once_more = (httpx2.post(url, json=body, headers=headers, timeout=BOUND_S) for _ in range(2))
        assert len(gateway.upstream.received) == 1
        other = httpx2.post(url, json=APIS[api].content(stream=stream, top_p=0.5), headers=headers, timeout=BOUND_S)
        rows = gateway.ask(gateway.runtime.store.list_runs())
        exported = [gateway.ask(gateway.runtime.store.evidence(row.id)) for row in rows]
    assert (again.status_code, again.content) == (200, once_more.content)
    assert again.headers["x-treadle-run"] == once_more.headers["x-treadle-run"]
    assert text_of(api, again.content) == ANSWER if stream else ANSWER in again.text
    assert other.status_code == 409
    assert [row.status for row in rows] == ["completed", "failed"]
    assert [audit_run(each).problems for each in exported] == [(), ()]


async def _until_asked(gateway: Gateway) -> None:
    while not gateway.upstream.received:
        await gateway.runtime.clock.sleep(0.002)


def test_who_wants_the_rest_of_a_failed_answer_gets_its_end(tmp_path: Path) -> None:
    """It has seen the beginning of that one, and another try would be another answer."""
    script = Script(turns=(ScriptTurn(faults=Faults(status=503)), ScriptTurn(text=ANSWER)))
    asked = APIS["chat"]
    with Gateway(script, tmp_path) as gateway:

        def ask(**headers: str) -> httpx2.Response:
            url, body = asked.url(gateway, stream=True), asked.content(stream=True)
            return httpx2.post(url, json=body, headers={**KEY, **headers}, timeout=BOUND_S)

        failed, rest, again = ask(), ask(**{"last-event-id": "1"}), ask()
        resumed = ask(**{"last-event-id": "1"})
    assert (failed.status_code, again.status_code) == (503, 200)
    assert (rest.headers["x-treadle-run"], ANSWER in rest.text) == (failed.headers["x-treadle-run"], False)
    assert text_of("chat", again.content) == ANSWER
    assert resumed.headers["x-treadle-run"] == again.headers["x-treadle-run"]


def test_what_is_not_stored_can_be_asked_for_again_for_a_while(rounds: Gateway) -> None:
    """store: false keeps nothing, but a client whose connection broke still hears its answer."""
    asked = APIS["chat"]
    body = asked.content(stream=False, store=False)
    first, second = (
        httpx2.post(asked.url(rounds, stream=False), json=body, headers=KEY, timeout=BOUND_S) for _ in range(2)
    )
    assert (first.status_code, first.content) == (200, second.content)


def test_several_choices_attach_together(tmp_path: Path) -> None:
    """Each choice is a run with a key of its own; another number of choices is another request."""
    script = Script(turns=(ScriptTurn(text="One."), ScriptTurn(text="Two.")))
    with Gateway(script, tmp_path) as gateway:
        asked = APIS["chat"]

        def ask(**more: Any) -> httpx2.Response:
            body = asked.content(stream=False, **more)
            return httpx2.post(asked.url(gateway, stream=False), json=body, headers=KEY, timeout=BOUND_S)

        first, second = ask(n=2), ask(n=2)
        assert sorted(choice["message"]["content"] for choice in first.json()["choices"]) == ["One.", "Two."]
        assert (second.status_code, second.content) == (200, first.content)
        assert ask(n=1).status_code == 409
        assert len(gateway.upstream.received) == 2


def test_a_client_that_comes_back_finds_its_run_alive(tmp_path: Path) -> None:
    """It went away while a tool ran: the run waits for it, and the tool runs once."""
    runs: list[str] = []

    @tool(effect="write")
    def book_table(place: str) -> str:
        """Book a table."""
        runs.append(place)
        return "booked"

    book = ReplyCall(name="book_table", args={"place": "Rome"}, id="call_1")
    script = Script(turns=(ScriptTurn(calls=(book,)), ScriptTurn(text=ANSWER, faults=Faults(stall_s=60.0))))
    with Gateway(script, tmp_path, tools=(book_table,)) as gateway:
        asked = APIS["chat"]
        with pytest.raises(httpx2.TimeoutException):
            httpx2.post(asked.url(gateway, stream=False), json=asked.content(stream=False), headers=KEY, timeout=0.5)
        gateway.loop.call_soon_threadsafe(gateway.upstream.release.set)
        answer = post(gateway, "chat", headers=KEY)
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER
    assert runs == ["Rome"]


def test_a_run_whose_client_does_not_come_back_is_ended(tmp_path: Path) -> None:
    """The wait is bounded: nobody pays for an answer that nobody reads."""
    script = Script(turns=(ScriptTurn(text=ANSWER, faults=Faults(stall_s=60.0)),))
    with Gateway(script, tmp_path, server=ServerSection(reconnect_s=0.05)) as gateway:
        asked = APIS["chat"]
        with pytest.raises(httpx2.TimeoutException):
            httpx2.post(asked.url(gateway, stream=False), json=asked.content(stream=False), headers=KEY, timeout=0.3)
        gateway.ask(gateway.upstream.disconnected.wait())
        again = post(gateway, "chat", headers=KEY)
    assert (again.status_code, again.json()["error"]["code"]) == (499, "cancelled")


SLOW = Script(turns=(ScriptTurn(text=ANSWER, faults=Faults(stall_s=60.0)), ScriptTurn(text="A second run.")))


def _retried_openai(gateway: Gateway, **fields: Any) -> tuple[str, int]:
    with openai.OpenAI(base_url=gateway.url, api_key="x", timeout=0.5, max_retries=4) as sdk:
        asked: Any = APIS["chat"].body["messages"]
        raw = sdk.chat.completions.with_raw_response.create(model="script", messages=asked, **fields)
        choices = raw.parse().choices
        return "".join(choice.message.content or "" for choice in choices), raw.retries_taken


def _retried_anthropic(gateway: Gateway) -> tuple[str, int]:
    with anthropic.Anthropic(base_url=gateway.origin, api_key="x", timeout=0.5, max_retries=4) as sdk:
        asked: Any = APIS["messages"].body["messages"]
        raw = sdk.messages.with_raw_response.create(model="script", max_tokens=100, messages=asked)
        return "".join(getattr(block, "text", "") for block in raw.parse().content), raw.retries_taken


@pytest.mark.parametrize("ask", [_retried_openai, _retried_anthropic])
def test_an_sdk_that_tries_again_by_itself_finds_its_run(tmp_path: Path, ask: Any) -> None:
    """It sends no key, but says that it is trying again: the run has waited for it."""
    with Gateway(SLOW, tmp_path) as gateway:
        timer = threading.Timer(0.7, lambda: gateway.loop.call_soon_threadsafe(gateway.upstream.release.set))
        timer.start()
        try:
            text, retries = ask(gateway)
        finally:
            timer.cancel()
        asked = len(gateway.upstream.received)
    assert (text, retries > 0, asked) == (ANSWER, True, 1)


def test_an_sdk_that_gives_up_leaves_no_run_behind(tmp_path: Path) -> None:
    """The wait is as long as an SDK's, and no longer."""
    with Gateway(SLOW, tmp_path) as gateway:
        sdk = openai.OpenAI(base_url=gateway.url, api_key="x", timeout=0.2, max_retries=0)
        with sdk, pytest.raises(openai.APITimeoutError):
            sdk.responses.create(model="script", input="Weather?")
        gateway.ask(gateway.upstream.disconnected.wait())
        assert gateway.ask(_ended(gateway)) == ["cancelled"]


async def _ended(gateway: Gateway) -> list[str]:
    """Wait until no run goes on, and return how they ended."""
    while True:
        rows = await gateway.runtime.store.list_runs(limit=9)
        if all(row.ended_at is not None for row in rows):
            return [row.status for row in rows]
        await gateway.runtime.clock.sleep(0.002)


async def _asked(gateway: Gateway) -> None:
    while not gateway.upstream.received:
        await gateway.runtime.clock.sleep(0.002)


def test_another_request_of_an_sdk_starts_a_run_of_its_own(tmp_path: Path) -> None:
    """Only the same body, from the same sender, that says it comes again, is a retry."""
    with Gateway(SLOW, tmp_path) as gateway:
        asked = APIS["chat"]
        url, body = asked.url(gateway, stream=False), asked.content(stream=False)
        first = {"x-stainless-retry-count": "0", "authorization": "Bearer a"}
        with pytest.raises(httpx2.TimeoutException):
            httpx2.post(url, json=body, headers=first, timeout=0.3)
        gateway.ask(_asked(gateway))
        other = {"x-stainless-retry-count": "1", "authorization": "Bearer b"}
        assert "A second run." in httpx2.post(url, json=body, headers=other, timeout=BOUND_S).text
