"""Answers across a SIGKILL of the server: polled, streamed, gone on with and cancelled, by real clients."""

import itertools
import time
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from gateway.apis import APIS, frames, read_frames, text_of
from gateway.restart import BOUND_S, Life, Upstream, life
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults

ANSWER = "It is 17 °C in Paris, and it will stay so until the evening. "
HELD = ScriptTurn(text=ANSWER, faults=Faults(stall_s=60.0))
AGAIN = Script(turns=(HELD, ScriptTurn(text=ANSWER)))
OTHERWISE = Script(turns=(HELD, ScriptTurn(text="Rain, rain, rain.")))
KEY = {"idempotency-key": "one"}


def client(served: Life) -> openai.OpenAI:
    """Return a plain SDK client."""
    return openai.OpenAI(base_url=served.url, api_key="unused", max_retries=0)


def seen_until_silent(sdk: openai.OpenAI) -> list[Any]:
    """Stream a background response until the model says nothing more, and hang up."""
    seen: list[Any] = []
    with sdk.responses.create(model="script", input="Weather?", background=True, stream=True) as stream:
        for event in stream:
            if seen and event.sequence_number == seen[-1].sequence_number:
                return seen
            seen.append(event)
    raise AssertionError("the stream ended")


def test_the_openai_sdk_goes_on_with_a_stream_after_the_server_was_killed(tmp_path: Path) -> None:
    """No number twice and none missing; the repeated answer is the same, so its item just goes on."""
    seen, whole, final = _killed_and_resumed(tmp_path, AGAIN)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert whole == [event.to_json() for event in seen]
    assert (seen[-1].type, seen[-1].response) == ("response.completed", final)
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == ANSWER
    assert [(item.status, item.content[0].text) for item in final.output] == [("completed", ANSWER)]


def test_the_openai_sdk_is_told_of_an_answer_that_was_broken_off_and_came_differently(tmp_path: Path) -> None:
    """The item is closed with what it had, and the other answer is an item of its own."""
    seen, whole, final = _killed_and_resumed(tmp_path, OTHERWISE)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert whole == [event.to_json() for event in seen]
    assert (seen[-1].type, seen[-1].response) == ("response.completed", final)
    broken, other = final.output
    assert (broken.status, other.status) == ("incomplete", "completed")
    assert ANSWER.startswith(broken.content[0].text)
    assert other.content[0].text == "Rain, rain, rain."


def _killed_and_resumed(tmp_path: Path, answers: Script) -> tuple[list[Any], list[str], Any]:
    """Stream a background response, kill its server, go on at the next one; then read it as a whole."""
    with Upstream(answers, chunk_bytes=64) as upstream:
        with life(tmp_path, upstream, 1) as first, client(first) as sdk:
            seen = seen_until_silent(sdk)
            first.kill()
        response_id = seen[0].response.id
        with life(tmp_path, upstream, 2) as second, client(second) as sdk:
            last = seen[-1].sequence_number
            with sdk.responses.retrieve(response_id, stream=True, starting_after=last) as stream:
                seen += list(stream)
            whole = [event.to_json() for event in sdk.responses.retrieve(response_id, stream=True)]
            return seen, whole, sdk.responses.retrieve(response_id)


def test_a_background_response_is_polled_and_cancelled_after_the_server_was_killed(tmp_path: Path) -> None:
    """It goes on by itself in the next life, and is ended there."""
    with Upstream(Script(turns=(HELD, HELD))) as upstream:
        with life(tmp_path, upstream, 1) as first, client(first) as sdk:
            response_id = sdk.responses.create(model="script", input="Weather?", background=True).id
            _wait_asked(upstream, 1)
            first.kill()
        with life(tmp_path, upstream, 2) as second, client(second) as sdk:
            assert sdk.responses.retrieve(response_id).status == "in_progress"
            _wait_asked(upstream, 2)
            assert sdk.responses.cancel(response_id).status == "cancelled"
            assert sdk.responses.retrieve(response_id).status == "cancelled"


def _wait_asked(upstream: Upstream, times: int) -> None:
    deadline = time.monotonic() + BOUND_S
    while len(upstream.server.received) < times:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def _half(served: Life, api: str) -> bytes:
    """Read until the model says nothing more and the server keeps the connection alive."""
    body = b""
    with _stream(served, api, KEY) as response:
        for chunk in response.iter_raw():
            body += chunk
            if body.endswith(b"\n\n") and b"id: " not in frames(body)[-1] and text_of(api, body):
                return b"".join(frame for frame in frames(body) if b"id: " in frame)
    raise AssertionError("the stream ended")


def _stream(served: Life, api: str, headers: dict[str, str]) -> Any:
    asked = APIS[api]
    return httpx2.stream(
        "POST", served.origin + asked.stream_path, json=asked.content(stream=True), headers=headers, timeout=BOUND_S
    )


def _rest(served: Life, api: str, half: bytes) -> bytes:
    last = read_frames(half)[-1].id
    with _stream(served, api, {**KEY, "last-event-id": last}) as response:
        return response.read()


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_a_client_reads_the_same_answer_once(tmp_path: Path, api: str) -> None:
    """The repeated model call says the same, so the stream just goes on."""
    with Upstream(AGAIN, chunk_bytes=64) as upstream:
        with life(tmp_path, upstream, 1) as first:
            half = _half(first, api)
            first.kill()
        with life(tmp_path, upstream, 2) as second:
            rest = _rest(second, api, half)
    told = half + rest
    assert 0 < len(text_of(api, half)) < len(ANSWER)
    assert text_of(api, told) == ANSWER
    # What only keeps the connection has no number of its own.
    numbers = [int(place.partition(".")[0]) for place, _ in itertools.groupby(f.id for f in read_frames(told))]
    before = len({frame.id for frame in read_frames(half)})
    assert numbers[:before] == list(range(1, before + 1))
    # After the recovery they leap: whatever a client saw before, it is no number of what came then.
    assert numbers[before:] == list(range(numbers[before], numbers[-1] + 1))
    assert numbers[before] > 2**24


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_another_answer_ends_in_an_error_that_says_where_it_is(tmp_path: Path, api: str) -> None:
    """The stream cannot go on; Treadle's own API has all of it."""
    with Upstream(OTHERWISE, chunk_bytes=64) as upstream:
        with life(tmp_path, upstream, 1) as first:
            half = _half(first, api)
            first.kill()
        with life(tmp_path, upstream, 2) as second:
            rest = _rest(second, api, half).decode()
            place = next(word for word in rest.replace('"', " ").split() if word.startswith("/treadle/v1/runs/"))
            events = httpx2.get(second.origin + place, timeout=BOUND_S)
    assert "Rain" not in rest
    assert "error" in rest
    assert "Rain" in events.text
    assert "round.broken" in events.text


@pytest.mark.parametrize("api", APIS)
def test_a_body_asked_for_again_has_nothing_of_the_broken_call(tmp_path: Path, api: str) -> None:
    """Nobody saw it, so the second answer is the answer."""
    asked = APIS[api]
    with Upstream(OTHERWISE) as upstream:
        with life(tmp_path, upstream, 1) as first:
            with pytest.raises(httpx2.TimeoutException):
                httpx2.post(first.origin + asked.path, json=asked.content(stream=False), headers=KEY, timeout=1.0)
            _wait_asked(upstream, 1)
            first.kill()
        with life(tmp_path, upstream, 2) as second:
            answer = httpx2.post(
                second.origin + asked.path, json=asked.content(stream=False), headers=KEY, timeout=BOUND_S
            )
    assert (answer.status_code, "Rain, rain, rain." in answer.text) == (200, True)
    assert api == "responses" or "17 " not in answer.text
