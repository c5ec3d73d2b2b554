"""The SDK's own tool loop over our codec: it runs its tools by our answers, and sends what our reader understands."""

from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import beta_tool

from stream.messages_oracle import STARTED
from stream.responses_runs import called, message
from treadle.core.events import RunEnded, RunEvent
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, ResultItem, TextPart, text_message
from treadle.core.request import Request
from treadle.protocols.messages import Encoder, read_request

CALL = CallItem(id="fc_1", call_id="toolu_1", name="get_weather", arguments='{"city":"Paris"}')
ROUNDS: list[list[RunEvent]] = [
    [*message(0, "Let me look."), *called(1, CALL, CALL.arguments), RunEnded(status="requires_action", stop="calls")],
    [*message(0, "Sunny."), RunEnded(status="completed")],
]


class Upstream:
    """Answers the SDK with one run after the other and keeps what it asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def answer(self, sent: httpx2.Request) -> httpx2.Response:
        """Return the next answer, streamed or whole."""
        request = read_request(sent.content)
        encoder = Encoder(request, CountingIds())
        frames = [frame for event in [STARTED, *ROUNDS[len(self.asked)]] for frame in encoder.feed(event)]
        self.asked.append(request)
        if request.surface.stream:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(frames))
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=encoder.body())


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner_goes_round_on_a_thread(stream: bool) -> None:
    """It calls its tool once, and its second request goes on from our message with nothing but the result."""
    ran: list[str] = []

    @beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: Where.
        """
        ran.append(city)
        return "sun"

    upstream = Upstream()
    http = httpx2.Client(transport=httpx2.MockTransport(upstream.answer))
    with anthropic.Anthropic(api_key="k", base_url="http://sdk.invalid", http_client=http, max_retries=0) as sdk:
        arguments: dict[str, Any] = {
            "model": "m",
            "max_tokens": 100,
            "tools": [get_weather],
            "system": "be brief",
            "messages": [{"role": "user", "content": "Weather in Paris?"}],
            "stream": stream,
        }
        final = sdk.beta.messages.tool_runner(**arguments).until_done()
    assert [block.text for block in final.content if block.type == "text"] == ["Sunny."]
    assert ran == ["Paris"]
    first, second = upstream.asked
    assert [spec.name for spec in first.tools] == ["get_weather"]
    assert (first.instructions, first.inherits) == ("be brief", False)
    assert first.items == (text_message("user", "Weather in Paris?"),)
    assert (second.previous_response_id, second.inherits, second.tools) == ("msg_1", True, ())
    assert second.items == (ResultItem(call_id="toolu_1", output=(TextPart(text="sun"),)),)


def test_without_a_thread_the_whole_conversation_comes_back() -> None:
    """As the items that our own answer was made of."""
    upstream = Upstream()

    @beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather."""
        return city

    http = httpx2.Client(transport=httpx2.MockTransport(upstream.answer))
    with anthropic.Anthropic(api_key="k", base_url="http://sdk.invalid", http_client=http, max_retries=0) as sdk:
        runner = sdk.beta.messages.tool_runner(
            model="m",
            max_tokens=100,
            tools=[get_weather],
            messages=[{"role": "user", "content": "Weather in Paris?"}],
            thread=False,
        )
        runner.until_done()
    assert upstream.asked[1].previous_response_id is None
    assert upstream.asked[1].items == (
        text_message("user", "Weather in Paris?"),
        text_message("assistant", "Let me look."),
        CallItem(call_id="toolu_1", name="get_weather", arguments='{"city":"Paris"}'),
        ResultItem(call_id="toolu_1", name="get_weather", output=(TextPart(text="Paris"),)),
    )
