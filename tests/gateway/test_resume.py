"""Streams that go on where they stopped: every API, from every frame, while the run lasts and after its end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from gateway.apis import APIS, BOUND_S, frames, post, read_frames, text_of
from gateway.gateway import Gateway
from treadle.config import ServerSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.tools.demo_tools import DEMO_TOOLS

ANSWER = "It is 17 °C in Paris, and it will stay so until the evening. "
PARIS = ReplyCall(name="get_weather", args={"city": "Paris"}, id="call_paris")
ROUNDS = Script(turns=(ScriptTurn(text="Let me see.", calls=(PARIS,)), ScriptTurn(text=ANSWER)))
SLOW = Script(turns=(ScriptTurn(text=ANSWER, faults=Faults(stall_s=60.0)),))
KEY = {"idempotency-key": "one"}


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose model calls a tool and then answers."""
    with Gateway(ROUNDS, tmp_path, tools=DEMO_TOOLS, chunk_bytes=64) as gateway:
        yield gateway


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose model falls silent half-way, until it is released."""
    server = ServerSection(keep_alive_s=0.05)
    with Gateway(SLOW, tmp_path, chunk_bytes=64, server=server) as gateway:
        yield gateway


@pytest.mark.parametrize("api", APIS)
def test_an_ended_stream_goes_on_after_any_frame(rounds: Gateway, api: str) -> None:
    """The same request with its key and Last-Event-ID gets exactly the rest, and nothing is run again."""
    first = post(rounds, api, stream=True, headers=KEY)
    sent = frames(first.content)
    ids = [frame.id for frame in read_frames(first.content)]
    start = 0 if api == "responses" else 1
    numbers = [each.partition(".")[0] for each in ids]
    assert numbers == [str(number) for number in range(start, len(sent) + start)]
    assert post(rounds, api, stream=True, headers=KEY).content == first.content
    for position, places in enumerate(zip(ids, numbers, strict=True), 1):
        for place in places:
            rest = post(rounds, api, stream=True, headers={**KEY, "last-event-id": place})
            assert (rest.status_code, rest.content) == (200, b"".join(sent[position:]))
            assert rest.headers["x-treadle-run"] == first.headers["x-treadle-run"]
    assert len(rounds.upstream.received) == 2


@pytest.mark.parametrize("api", APIS)
def test_a_client_comes_back_while_the_run_goes_on(slow: Gateway, api: str) -> None:
    """The run waits for a client that gave it a key; the two halves are one answer, keep-alives left out."""
    half = _until_silent(slow, api)
    last = next(frame.id for frame in reversed(read_frames(half)) if frame.id)
    with _stream(slow, api, {**KEY, "last-event-id": last}) as response:
        slow.loop.call_soon_threadsafe(slow.upstream.release.set)
        rest = response.read()
    numbered = [frame for frame in frames(half + rest) if b"id: " in frame]
    whole = post(slow, api, stream=True, headers=KEY)
    assert _without_role(b"".join(numbered)) == _without_role(whole.content)
    assert text_of(api, b"".join(numbered)) == text_of(api, whole.content) == ANSWER
    assert len(slow.upstream.received) == 1


def _without_role(body: bytes) -> bytes:
    """Chat names the role in the first frame, be it a keep-alive."""
    return body.replace(b'"role":"assistant",', b"")


def _stream(gateway: Gateway, api: str, headers: dict[str, str]) -> Any:
    asked = APIS[api]
    return httpx2.stream(
        "POST", asked.url(gateway, stream=True), json=asked.content(stream=True), headers=headers, timeout=BOUND_S
    )


def _until_silent(gateway: Gateway, api: str) -> bytes:
    """Read until the model says nothing more and the server keeps the connection alive, then hang up."""
    body = b""
    with _stream(gateway, api, KEY) as response:
        for chunk in response.iter_raw():
            body += chunk
            if body.endswith(b"\n\n") and b"id: " not in frames(body)[-1] and text_of(api, body):
                return body
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_frames_have_no_number_without_a_key(rounds: Gateway, api: str) -> None:
    """They would help nobody: without a key there is nothing to come back to."""
    assert not any(frame.id for frame in read_frames(post(rounds, api, stream=True).content))


@pytest.mark.parametrize("api", APIS)
def test_a_place_without_a_key_is_refused(rounds: Gateway, api: str) -> None:
    """A new run would tell the beginning twice."""
    refused = post(rounds, api, stream=True, headers={"last-event-id": "3"})
    assert refused.status_code == 400
    assert "Last-Event-ID" in refused.text
    assert rounds.upstream.received == []


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("place", ["x", "-1", "1.5", "1.5.x", "9" * 20])
def test_a_place_that_is_none_is_refused(rounds: Gateway, api: str, place: str) -> None:
    """The header is named."""
    refused = post(rounds, api, stream=True, headers={**KEY, "last-event-id": place})
    assert (refused.status_code, "Last-Event-ID" in refused.text) == (400, True)


def test_a_key_that_nobody_used_has_no_stream_to_go_on_with(rounds: Gateway) -> None:
    """The run is gone, or was never there: starting a new one in its middle would be wrong."""
    refused = post(rounds, "chat", stream=True, headers={**KEY, "last-event-id": "3"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "idempotency_key_not_found")
    assert rounds.upstream.received == []


def test_only_streams_can_be_gone_on_with(rounds: Gateway) -> None:
    """A body has no frames."""
    refused = post(rounds, "chat", headers={**KEY, "last-event-id": "3"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "Last-Event-ID")


def test_the_vendors_sdks_read_streams_with_numbers(rounds: Gateway) -> None:
    """openai and anthropic ignore the numbers; google-genai takes them for JSON, so it gets none."""
    with openai.OpenAI(base_url=rounds.url, api_key="x", default_headers=KEY) as sdk:
        asked: Any = APIS["chat"].body["messages"]
        with sdk.chat.completions.stream(model="script", messages=asked) as stream:
            text = stream.get_final_completion().choices[0].message.content
        assert text == f"Let me see.\n\n{ANSWER}"


def test_anthropic_reads_a_stream_with_numbers(rounds: Gateway) -> None:
    """Its accumulator sees nothing unusual."""
    with anthropic.Anthropic(base_url=rounds.origin, api_key="x", default_headers=KEY) as sdk:
        asked: Any = APIS["messages"].body["messages"]
        with sdk.messages.stream(model="script", max_tokens=100, messages=asked) as stream:
            assert stream.get_final_text() == f"Let me see.{ANSWER}"


def test_google_genai_gets_a_stream_without_numbers(rounds: Gateway) -> None:
    """It would fail on the first `id:` line; the key holds all the same."""
    options = genai_types.HttpOptions(base_url=rounds.origin, headers=KEY)
    with genai.Client(api_key="x", http_options=options) as sdk:
        for _ in range(2):
            chunks = sdk.models.generate_content_stream(model="script", contents="What is the weather in Paris?")
            assert "".join(chunk.text or "" for chunk in chunks) == f"Let me see.\n\n{ANSWER}"
    assert len(rounds.upstream.received) == 2


def test_a_gemini_array_cannot_be_gone_on_with(rounds: Gateway) -> None:
    """It has no frames either."""
    url = f"{rounds.origin}/v1beta/models/script:streamGenerateContent"
    headers = {**KEY, "last-event-id": "1"}
    refused = httpx2.post(url, json=APIS["gemini"].content(stream=True), headers=headers)
    assert (refused.status_code, "Last-Event-ID" in refused.text) == (400, True)


def test_the_events_of_a_run_go_on_after_any_number(rounds: Gateway) -> None:
    """Every event has its number, deltas too; live and from the journal they are the same."""
    url = f"{rounds.origin}/treadle/v1/runs"
    live = httpx2.post(url, json={"input": "What is the weather?", "stream": True}, timeout=BOUND_S)
    run_id = live.headers["x-treadle-run"]
    sent = frames(live.content)
    assert [frame.id for frame in read_frames(live.content)] == [str(number) for number in range(1, len(sent) + 1)]
    for number in range(len(sent)):
        again = httpx2.get(f"{url}/{run_id}/events", headers={"last-event-id": str(number)})
        assert (again.status_code, again.content) == (200, b"".join(sent[number:]))
    assert httpx2.get(f"{url}/{run_id}/events?after={len(sent)}").status_code == 204


def test_a_run_started_twice_under_a_key_is_one_run(rounds: Gateway) -> None:
    """Treadle's own API knows keys too; the second answer is not a creation, and a stream goes on."""
    url = f"{rounds.origin}/treadle/v1/runs"
    first, second = (httpx2.post(url, json={"input": "Hi"}, headers=KEY) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    other = httpx2.post(url, json={"input": "Ho"}, headers=KEY)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
    streamed = {"input": "Hi", "stream": True}
    whole = httpx2.post(url, json=streamed, headers={"idempotency-key": "two"}, timeout=BOUND_S)
    rest = httpx2.post(url, json=streamed, headers={"idempotency-key": "two", "last-event-id": "3"}, timeout=BOUND_S)
    assert b"".join(frames(whole.content)[3:]) == rest.content
