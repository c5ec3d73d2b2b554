"""The real openai SDK, through Treadle, to a scripted upstream: the judge of the client side."""

from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from gateway.gateway import Gateway
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_model import Script, ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.tools.demo_tools import DEMO_TOOLS

CHUNKS = [1, 7, None]
PARIS = ReplyCall(name="get_weather", args={"city": "Paris"}, id="call_paris")
ROME = ReplyCall(name="get_weather", args={"city": "Rome"}, id="call_rome")
BOOK = ReplyCall(name="book_table", args={"seats": 2, "place": "Café ☕"}, id="call_book")
ANSWER = "It is 17 °C in Paris. 🌤"
USAGE = Usage(input_tokens=10, output_tokens=5)
BOOK_PARAMETERS = {
    "type": "object",
    "properties": {"seats": {"type": "integer"}, "place": {"type": "string"}},
    "required": ["seats", "place"],
}
BOOK_CHAT: Any = {"type": "function", "function": {"name": "book_table", "parameters": BOOK_PARAMETERS}}
BOOK_RESPONSES: Any = {"type": "function", "name": "book_table", "parameters": BOOK_PARAMETERS, "strict": False}

TWO_ROUNDS = Script(
    turns=(
        ScriptTurn(sees=Sees(last_role="user", contains="weather"), calls=(PARIS,)),
        ScriptTurn(sees=Sees(last_role="tool", contains="temperature_c"), text=ANSWER),
    )
)
CLIENT_ROUNDS = Script(
    turns=(
        ScriptTurn(text="One moment. ", calls=(BOOK,)),
        ScriptTurn(sees=Sees(last_role="tool", contains="booked"), text="Booked."),
    )
)
MIXED = Script(
    turns=(
        ScriptTurn(calls=(PARIS, BOOK, ROME)),
        ScriptTurn(sees=Sees(last_role="tool", contains=("Paris", "booked", "Rome")), text="All done."),
    )
)
ASK: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(params=CHUNKS, ids=lambda size: f"chunks-{size or 'whole'}")
def chunk_bytes(request: pytest.FixtureRequest) -> int | None:
    """Cut what the upstream sends."""
    return request.param


def client(gateway: Gateway) -> OpenAI:
    """Return a plain SDK client."""
    return OpenAI(base_url=gateway.url, api_key="unused", max_retries=0)


def chat_stream(gateway: Gateway, **request: Any) -> Any:
    """Return what the SDK's own accumulator makes of a Chat stream."""
    with client(gateway) as sdk, sdk.chat.completions.stream(model="script", **request) as stream:
        return stream.get_final_completion()


def chat_whole(gateway: Gateway, **request: Any) -> Any:
    """Return a whole Chat completion."""
    with client(gateway) as sdk:
        return sdk.chat.completions.create(model="script", **request)


def responses_stream(gateway: Gateway, **request: Any) -> Any:
    """Return what the SDK's own accumulator makes of a Responses stream; it refuses any event out of order."""
    with client(gateway) as sdk, sdk.responses.stream(model="script", **request) as stream:
        events = list(stream)
        assert [event.sequence_number for event in events if hasattr(event, "sequence_number")] == sorted(
            event.sequence_number for event in events if hasattr(event, "sequence_number")
        )
        return stream.get_final_response()


def responses_whole(gateway: Gateway, **request: Any) -> Any:
    """Return a whole response."""
    with client(gateway) as sdk:
        return sdk.responses.create(model="script", **request)


CHAT = pytest.mark.parametrize("ask", [chat_stream, chat_whole])
RESPONSES = pytest.mark.parametrize("ask", [responses_stream, responses_whole])


@CHAT
def test_chat_gains_server_tools(ask: Any, chunk_bytes: int | None, tmp_path: Path):
    """Two rounds with a server tool are one ordinary completion to the client."""
    with Gateway(TWO_ROUNDS, tmp_path, tools=DEMO_TOOLS, chunk_bytes=chunk_bytes) as gateway:
        completion = ask(gateway, messages=ASK)
        choice = completion.choices[0]
        assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == (ANSWER, "stop", None)
        assert gateway.upstream.player.mismatches == []
        assert len(gateway.upstream.received) == 2


@RESPONSES
def test_responses_gain_server_tools(ask: Any, chunk_bytes: int | None, tmp_path: Path):
    """The server's call is a native mcp_call item, followed by the answer."""
    with Gateway(TWO_ROUNDS, tmp_path, tools=DEMO_TOOLS, chunk_bytes=chunk_bytes) as gateway:
        response = ask(gateway, input=ASK)
        assert response.status == "completed"
        assert [item.type for item in response.output] == ["mcp_call", "message"]
        assert (response.output[0].name, response.output[0].arguments) == ("get_weather", '{"city":"Paris"}')
        assert '"temperature_c"' in response.output[0].output
        assert response.output_text == ANSWER


@CHAT
def test_chat_hands_a_clients_call_to_the_client(ask: Any, chunk_bytes: int | None, tmp_path: Path):
    """Text and call arrive whole; the client's result brings the answer."""
    with Gateway(CLIENT_ROUNDS, tmp_path, chunk_bytes=chunk_bytes) as gateway:
        first = ask(gateway, messages=ASK, tools=[BOOK_CHAT]).choices[0]
        call = first.message.tool_calls[0]
        assert (first.finish_reason, first.message.content) == ("tool_calls", "One moment. ")
        assert (call.id, call.type, call.function.name) == ("call_book", "function", "book_table")
        assert call.function.arguments == '{"seats":2,"place":"Café ☕"}'
        assistant = {
            "role": "assistant",
            "content": first.message.content,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
            ],
        }
        result = {"role": "tool", "tool_call_id": call.id, "content": "booked"}
        second = ask(gateway, messages=[*ASK, assistant, result], tools=[BOOK_CHAT]).choices[0]
        assert (second.finish_reason, second.message.content) == ("stop", "Booked.")


@RESPONSES
def test_responses_continue_by_previous_response_id(ask: Any, chunk_bytes: int | None, tmp_path: Path):
    """The client sends only its result; Treadle has the rest."""
    with Gateway(CLIENT_ROUNDS, tmp_path, chunk_bytes=chunk_bytes) as gateway:
        first = ask(gateway, input=ASK, tools=[BOOK_RESPONSES])
        call = first.output[-1]
        assert (first.status, call.type, call.arguments) == (
            "completed",
            "function_call",
            '{"seats":2,"place":"Café ☕"}',
        )
        result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "booked"}]
        second = ask(gateway, input=result, previous_response_id=first.id, tools=[BOOK_RESPONSES])
        assert second.output_text == "Booked."
        assert second.previous_response_id == first.id


@CHAT
def test_chat_mixed_turn(ask: Any, chunk_bytes: int | None, tmp_path: Path):
    """Server and client calls of one reply: the client sees its own, and both halves meet again upstream."""
    with Gateway(MIXED, tmp_path, tools=DEMO_TOOLS, chunk_bytes=chunk_bytes) as gateway:
        first = ask(gateway, messages=ASK, tools=[BOOK_CHAT]).choices[0]
        assert [call.function.name for call in first.message.tool_calls] == ["book_table"]
        call = first.message.tool_calls[0]
        assistant = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
            ],
        }
        result = {"role": "tool", "tool_call_id": call.id, "content": "booked"}
        second = ask(gateway, messages=[*ASK, assistant, result], tools=[BOOK_CHAT]).choices[0]
        assert second.message.content == "All done."
        sent = openai_messages(gateway)
        assert [call["id"] for call in sent[1]["tool_calls"]] == ["call_paris", "call_book", "call_rome"]
        assert [message["tool_call_id"] for message in sent[2:]] == ["call_paris", "call_book", "call_rome"]


@RESPONSES
@pytest.mark.parametrize("how", ["previous", "replay"])
def test_responses_mixed_turn(ask: Any, how: str, tmp_path: Path):
    """The same over Responses, continued by id or by sending everything back."""
    with Gateway(MIXED, tmp_path, tools=DEMO_TOOLS) as gateway:
        first = ask(gateway, input=ASK, tools=[BOOK_RESPONSES])
        assert sorted(item.type for item in first.output) == ["function_call", "mcp_call", "mcp_call"]
        call = next(item for item in first.output if item.type == "function_call")
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "booked"}
        if how == "previous":
            second = ask(gateway, input=[result], previous_response_id=first.id, tools=[BOOK_RESPONSES])
        else:
            items = [item.model_dump(exclude_none=True) for item in first.output]
            second = ask(gateway, input=[*ASK, *items, result], tools=[BOOK_RESPONSES])
        assert second.output_text == "All done."
        sent = openai_messages(gateway)
        assert [call["id"] for call in sent[1]["tool_calls"]] == ["call_paris", "call_book", "call_rome"]
        assert [message["tool_call_id"] for message in sent[2:]] == ["call_paris", "call_book", "call_rome"]


def openai_messages(gateway: Gateway) -> list[dict[str, Any]]:
    """Return the messages of the last request that reached the upstream."""
    return msgspec.json.decode(gateway.upstream.received[-1].body)["messages"]


async def test_the_async_client_works_too(tmp_path: Path):
    """Chat and Responses, streamed by the async SDK."""
    script = Script(turns=TWO_ROUNDS.turns * 2)
    with Gateway(script, tmp_path, tools=DEMO_TOOLS) as gateway:
        async with AsyncOpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as sdk:
            async with sdk.chat.completions.stream(model="script", messages=ASK) as stream:
                assert (await stream.get_final_completion()).choices[0].message.content == ANSWER
            async with sdk.responses.stream(model="script", input=ASK) as stream:
                assert (await stream.get_final_response()).output_text == ANSWER


def test_usage_is_summed_over_the_rounds(tmp_path: Path):
    """One request, two model calls, one usage."""
    turns = tuple(msgspec.structs.replace(turn, usage=USAGE) for turn in TWO_ROUNDS.turns)
    with Gateway(Script(turns=turns * 2), tmp_path, tools=DEMO_TOOLS) as gateway:
        chat = chat_stream(gateway, messages=ASK, stream_options={"include_usage": True}).usage
        assert (chat.prompt_tokens, chat.completion_tokens, chat.total_tokens) == (20, 10, 30)
        usage = responses_stream(gateway, input=ASK).usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (20, 10, 30)


CUT = Script(
    turns=(ScriptTurn(text="Once upon a time there was a stream", faults=Faults(disconnect_after=700)),),
)


@pytest.mark.parametrize("ask", [chat_stream, chat_whole, responses_whole])
def test_a_cut_stream_is_an_error_never_success(ask: Any, tmp_path: Path):
    """An upstream that hangs up in the middle fails the request in each API's own way."""
    with Gateway(CUT, tmp_path) as gateway, pytest.raises(openai.APIError):
        ask(gateway, **{"messages" if "chat" in ask.__name__ else "input": ASK})


def test_a_cut_stream_fails_the_response_it_began(tmp_path: Path):
    """On Responses the terminal event is response.failed, of the same response."""
    with Gateway(CUT, tmp_path) as gateway, client(gateway) as sdk:
        events = list(sdk.responses.create(model="script", input=ASK, stream=True))
        assert [events[0].type, events[-1].type] == ["response.created", "response.failed"]
        assert events[-1].response.id == events[0].response.id


def test_a_refusal_of_the_upstream_keeps_its_meaning(tmp_path: Path):
    """401 of our key is a 502 with a hint, 429 stays 429 with its retry-after, 400 stays 400."""
    refused = tuple(ScriptTurn(faults=Faults(status=status)) for status in (401, 429, 400, 404, 500))
    with Gateway(Script(turns=refused), tmp_path) as gateway, client(gateway) as sdk:
        seen: list[int] = []
        for _ in refused:
            with pytest.raises(openai.APIStatusError) as caught:
                sdk.chat.completions.create(model="script", messages=ASK, stream=True)
            seen.append(caught.value.status_code)
        assert seen == [502, 429, 400, 404, 502]


def test_models_are_listed(tmp_path: Path):
    """The SDK's own listing works."""
    with Gateway(TWO_ROUNDS, tmp_path) as gateway, client(gateway) as sdk:
        assert [model.id for model in sdk.models.list()] == ["script"]
        assert sdk.models.retrieve("script").id == "script"
        with pytest.raises(openai.NotFoundError):
            sdk.models.retrieve("nope")


def test_a_stored_response_can_be_fetched_and_deleted(tmp_path: Path):
    """What was streamed is what is stored, until it is deleted."""
    with Gateway(TWO_ROUNDS, tmp_path, tools=DEMO_TOOLS) as gateway, client(gateway) as sdk:
        response = responses_stream(gateway, input=ASK)
        again = sdk.responses.retrieve(response.id)
        assert (again.id, again.status, again.output_text) == (response.id, "completed", ANSWER)
        assert [item.id for item in again.output] == [item.id for item in response.output]
        sdk.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(response.id)


def test_what_is_not_stored_cannot_be_fetched(tmp_path: Path):
    """`store: false` leaves nothing to retrieve."""
    with Gateway(TWO_ROUNDS, tmp_path, tools=DEMO_TOOLS) as gateway, client(gateway) as sdk:
        response = sdk.responses.create(model="script", input=ASK, store=False)
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(response.id)
