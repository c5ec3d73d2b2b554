"""Responses in the background, with the real openai SDK: polled, streamed, resumed and cancelled."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.gateway import START_S, Gateway
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.tools.demo_tools import DEMO_TOOLS

ANSWER = "It is 17 °C in Paris, and it will stay so until the evening. "
HELD = Faults(stall_s=60.0)
PARIS = ReplyCall(name="get_weather", args={"city": "Paris"}, id="call_paris")
SLOW = Script(turns=(ScriptTurn(text=ANSWER, faults=HELD),))
TWO_ROUNDS = Script(turns=(ScriptTurn(text="Let me see.", calls=(PARIS,)), ScriptTurn(text=ANSWER, faults=HELD)))
ENDED = ("completed", "cancelled", "failed", "incomplete")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose model falls silent half-way, until it is released."""
    with Gateway(SLOW, tmp_path, chunk_bytes=64) as gateway:
        yield gateway


def client(gateway: Gateway) -> openai.OpenAI:
    """Return a plain SDK client."""
    return openai.OpenAI(base_url=gateway.url, api_key="unused", max_retries=0)


def release(gateway: Gateway) -> None:
    """Let the model go on."""
    gateway.loop.call_soon_threadsafe(gateway.upstream.release.set)


def polled(sdk: openai.OpenAI, response_id: str, wanted: tuple[str, ...] = ENDED) -> Any:
    """Ask until the response has such a status."""
    deadline = time.monotonic() + START_S
    while (response := sdk.responses.retrieve(response_id)).status not in wanted:
        assert time.monotonic() < deadline, response.status
    return response


def start(sdk: openai.OpenAI, **fields: Any) -> Any:
    """Start a background response."""
    return sdk.responses.create(model="script", input="What is the weather?", background=True, **fields)


def test_a_background_response_is_answered_at_once_and_polled(slow: Gateway) -> None:
    """It is not there yet, then it is; nobody waits for it."""
    with client(slow) as sdk:
        first = start(sdk)
        assert (first.status, first.background, first.usage, first.output) == ("in_progress", True, None, [])
        assert sdk.responses.retrieve(first.id).status == "in_progress"
        release(slow)
        done = polled(sdk, first.id)
    assert (done.status, done.output_text, done.id) == ("completed", ANSWER, first.id)
    assert done.usage is not None


def test_a_poll_shows_the_output_so_far(tmp_path: Path) -> None:
    """Items that are whole are there before the response is."""
    with Gateway(TWO_ROUNDS, tmp_path, tools=DEMO_TOOLS) as gateway, client(gateway) as sdk:
        first = start(sdk)
        deadline = time.monotonic() + START_S
        while len((seen := sdk.responses.retrieve(first.id)).output) < 2:
            assert time.monotonic() < deadline
        assert (seen.status, seen.usage) == ("in_progress", None)
        assert [item.type for item in seen.output] == ["message", "mcp_call"]
        release(gateway)
        done = polled(sdk, first.id)
    assert [item.type for item in done.output] == ["message", "mcp_call", "message"]
    assert [item.id for item in done.output][:2] == [item.id for item in seen.output]


def test_closing_a_background_stream_does_not_end_the_response(slow: Gateway) -> None:
    """The client comes back with the number it has got to, and misses nothing."""
    with client(slow) as sdk:
        seen: list[Any] = []
        with start(sdk, stream=True) as stream:
            for event in stream:
                seen.append(event)
                if event.type == "response.output_text.delta":
                    break
        response_id, number = seen[0].response.id, seen[-1].sequence_number
        assert sdk.responses.retrieve(response_id).status == "in_progress"
        with sdk.responses.retrieve(response_id, stream=True, starting_after=number) as stream:
            for event in stream:
                seen.append(event)
                release(slow)
        again = list(sdk.responses.retrieve(response_id, stream=True))
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == ANSWER
    assert seen[-1].type == "response.completed"
    assert [event.to_json() for event in again] == [event.to_json() for event in seen]


def test_the_sdks_own_helper_resumes_a_stream(slow: Gateway) -> None:
    """It follows the events from the middle and returns the whole response."""
    with client(slow) as sdk:
        first = start(sdk)
        release(slow)
        with sdk.responses.stream(response_id=first.id, starting_after=0) as stream:
            final = [event for event in stream if event.type == "response.completed"]
    assert final[0].response.output_text == ANSWER


def test_a_background_response_is_cancelled_once_and_stays_so(slow: Gateway) -> None:
    """The model is let go, what was said stays, and a second cancel changes nothing."""
    with client(slow) as sdk:
        first = start(sdk)
        slow.ask(_asked(slow))
        cancelled = sdk.responses.cancel(first.id)
        assert cancelled.status == "cancelled"
        slow.ask(slow.upstream.disconnected.wait())
        assert sdk.responses.cancel(first.id) == cancelled == sdk.responses.retrieve(first.id)
        events = list(sdk.responses.retrieve(first.id, stream=True))
    terminal = [event.type for event in events if event.type in ("response.incomplete", "response.completed")]
    assert terminal == ["response.incomplete"]
    assert events[-1].response.status == "cancelled"


async def _asked(gateway: Gateway) -> None:
    while not gateway.upstream.received:
        await gateway.runtime.clock.sleep(0.001)


def test_only_a_background_response_can_be_cancelled(slow: Gateway) -> None:
    """As the API says; any other ends with its connection."""
    release(slow)
    with client(slow) as sdk:
        response = sdk.responses.create(model="script", input="hi")
        with pytest.raises(openai.BadRequestError) as caught:
            sdk.responses.cancel(response.id)
    assert caught.value.code == "not_a_background_response"


def test_a_background_response_must_be_stored(slow: Gateway) -> None:
    """Nobody could ever read it."""
    with client(slow) as sdk, pytest.raises(openai.BadRequestError) as caught:
        start(sdk, store=False)
    assert caught.value.param == "store"


def test_a_deleted_background_response_is_ended_and_gone(slow: Gateway) -> None:
    """Deleting what is going on cancels it first."""
    with client(slow) as sdk:
        first = start(sdk)
        slow.ask(_asked(slow))
        sdk.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(first.id)
    slow.ask(slow.upstream.disconnected.wait())


def test_what_is_not_stored_cannot_be_streamed_again(slow: Gateway) -> None:
    """store: false leaves nothing behind."""
    release(slow)
    with client(slow) as sdk:
        response = sdk.responses.create(model="script", input="hi", store=False)
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(response.id, stream=True)


def test_another_server_reads_along_and_cancels(tmp_path: Path) -> None:
    """Two processes on one journal: what one drives, the other polls, streams live and ends."""
    with Gateway(SLOW, tmp_path, chunk_bytes=64) as owner, Gateway(SLOW, tmp_path) as other:
        with client(owner) as here, client(other) as there:
            with start(here, stream=True) as stream:
                seen = next(event for event in stream if event.type == "response.created")
                response_id = seen.response.id
                assert there.responses.retrieve(response_id).status == "in_progress"
                with there.responses.retrieve(response_id, stream=True) as copy:
                    deltas = [event for event in copy if _leave_after(event, there, response_id)]
                rest = list(stream)
            assert deltas[0].sequence_number == 0
            assert there.responses.retrieve(response_id).status == "cancelled"
            assert here.responses.retrieve(response_id) == there.responses.retrieve(response_id)
        owner.ask(owner.upstream.disconnected.wait())
        assert other.upstream.received == []
    told = {event.sequence_number: event.to_json() for event in rest}
    assert all(told.get(event.sequence_number, event.to_json()) == event.to_json() for event in deltas)
    assert (rest[-1].type, deltas[-1].type) == ("response.incomplete", "response.incomplete")


def _leave_after(event: Any, sdk: openai.OpenAI, response_id: str) -> bool:
    """Cancel the response as soon as some of its text is seen."""
    if event.type == "response.output_text.delta":
        sdk.responses.cancel(response_id)
    return True
