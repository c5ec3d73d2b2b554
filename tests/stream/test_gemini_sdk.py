"""Whole conversations of the google-genai SDK: what it sends back of what we sent, and what we make of that."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from google.genai import types
from pydantic import BaseModel

from stream.answers import as_run, decode
from stream.gemini_shapes import SIGNATURE, call, chunk, end, stream, text, thought
from stream.genai import Wire
from treadle.core.events import RunEvent
from treadle.core.ids import CountingIds
from treadle.core.items import (
    Blob,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    ReasoningItem,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.core.json import read_json
from treadle.core.plan import Plan
from treadle.core.request import Request
from treadle.core.tool_definitions import ToolChoice
from treadle.protocols.gemini import Decoder, write_request

PNG = b"\x89PNG\xfb\xff\xfe"
OWN = Blob(provider="google", kind="thought_signature", data=SIGNATURE, model="gemini-3")


def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def get_time() -> str:
    """Tell the time."""
    raise RuntimeError("no clock")


def _rounds(*bodies: bytes) -> Callable[[Request], Iterable[RunEvent]]:
    """Answer each request with what the decoder makes of the next of these upstream bodies."""
    left = iter(bodies)

    def answer(_: Request) -> Iterable[RunEvent]:
        return as_run(decode(Decoder(CountingIds(namespace="x"), provider="google", model="gemini-3"), next(left)))

    return answer


def _config(**fields: Any) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(tools=[get_weather, get_time], **fields)


TWO_CALLS = stream(
    chunk(thought("Hm, ")),
    chunk(thought("two.")),
    text("Let me "),
    text("look."),
    chunk({**call("get_weather", {"city": "Paris"}, "up_1"), "thoughtSignature": SIGNATURE}),
    chunk(call("get_time", {})),
    end(),
)
ANSWER = stream(text("It is sunny."), end())
CALLS = (
    CallItem(call_id="up_1", name="get_weather", arguments='{"city":"Paris"}', blobs=(OWN,)),
    CallItem(call_id="call_x0005", name="get_time", arguments="{}"),
)


@pytest.mark.parametrize("streams", [False, True])
def test_automatic_calling_comes_back_as_one_turn_with_its_results(streams: bool) -> None:
    """Per-chunk model contents are one turn; results without ids belong to the calls by order."""
    wire = Wire(_rounds(TWO_CALLS, ANSWER))
    chat = wire.client().chats.create(model="gemini-3", config=_config())
    if streams:
        said = "".join(part.text or "" for part in chat.send_message_stream("weather?"))
        assert said == "Let me look.It is sunny."
    else:
        assert chat.send_message("weather?").text == "It is sunny."
    assert wire.requests[1].items == (
        text_message("user", "weather?"),
        ReasoningItem(text=("Hm, two.",)),
        text_message("assistant", "Let me look."),
        *CALLS,
        text_result(CALLS[0], "sunny in Paris"),
        ResultItem(
            call_id="call_x0005",
            name="get_time",
            output=(TextPart(text=_clock_error(wire)),),
            is_error=True,
            rc="failed",
        ),
    )
    assert b'"id"' not in wire.bodies[1].split(b"functionResponse")[1]


def _clock_error(wire: Wire) -> str:
    responses = json.loads(wire.bodies[1])["contents"][-1]["parts"]
    error = responses[1]["functionResponse"]["response"]["error"]
    assert "no clock" in error
    return error


def test_a_third_turn_sees_the_whole_conversation() -> None:
    """The SDK keeps every chunk in its history, the empty last ones too; none of them is a turn of its own."""
    wire = Wire(_rounds(TWO_CALLS, ANSWER, ANSWER))
    chat = wire.client().chats.create(model="gemini-3", config=_config())
    list(chat.send_message_stream("weather?"))
    list(chat.send_message_stream("thanks"))
    kinds = [type(item).__name__ for item in wire.requests[2].items]
    assert kinds == [
        *("MessageItem", "ReasoningItem", "MessageItem", "CallItem", "CallItem", "ResultItem", "ResultItem"),
        *("MessageItem", "MessageItem"),
    ]
    assert wire.requests[2].items[-2:] == (text_message("assistant", "It is sunny."), text_message("user", "thanks"))


def test_a_signature_survives_the_client_and_goes_back_to_its_maker_only() -> None:
    """The client carries the signature sealed with its maker's name; the same part bears it on the way back."""
    wire = Wire(_rounds(TWO_CALLS, ANSWER))
    chat = wire.client().chats.create(model="gemini-3", config=_config())
    list(chat.send_message_stream("weather?"))
    plan = Plan(items=wire.requests[1].items, model="gemini-3", tools=wire.requests[1].tools)
    own = read_json(write_request(plan, provider="google").body)
    parts = own["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, None, SIGNATURE, None]
    other = write_request(plan, provider="elsewhere")
    assert SIGNATURE.encode() not in other.body
    assert "blob_dropped" in [note.code for note in other.notes]


def test_a_signature_on_text_survives_the_client() -> None:
    """The last part of an answer may be empty but for a signature."""
    body = stream(text("Hi"), chunk({"text": "", "thoughtSignature": SIGNATURE}, finish="STOP"))
    wire = Wire(_rounds(body, body, body))
    client = wire.client()
    chat = client.chats.create(model="gemini-3")
    list(chat.send_message_stream("a"))
    chat.send_message("b")
    chat.send_message("c")
    said = MessageItem(role="assistant", content=(TextPart(text="Hi"),), blobs=(OWN,))
    assert wire.requests[2].items == (
        *(text_message("user", "a"), said, text_message("user", "b"), said, text_message("user", "c")),
    )


def test_the_sdks_config_is_read_in_its_own_mix_of_spellings() -> None:
    """snake_case inside camelCase: declarations, schemas, thinking, modes."""

    class City(BaseModel):
        name: str
        people: int | None

    wire = Wire(_rounds(ANSWER))
    config = types.GenerateContentConfig(
        tools=[get_weather, types.Tool(google_search=types.GoogleSearch())],
        tool_config=types.ToolConfig(
            function_calling_config=types.FunctionCallingConfig(
                mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["get_weather"]
            )
        ),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        system_instruction="Be brief.",
        temperature=0.5,
        top_k=3,
        max_output_tokens=99,
        stop_sequences=["END"],
        seed=7,
        response_mime_type="application/json",
        response_schema=City,
        thinking_config=types.ThinkingConfig(thinking_budget=1024, include_thoughts=True),
        safety_settings=[
            types.SafetySetting(
                category=types.HarmCategory.HARM_CATEGORY_HARASSMENT, threshold=types.HarmBlockThreshold.BLOCK_NONE
            )
        ],
    )
    wire.client().models.generate_content(model="models/gemini-3", contents="hi", config=config)
    request = wire.requests[0]
    assert (request.model, request.instructions) == ("gemini-3", "Be brief.")
    assert request.tool_choice == ToolChoice(mode="named", name="get_weather")
    assert [(tool.name, read_json(bytes(tool.parameters))["type"]) for tool in request.tools] == [
        ("get_weather", "object")
    ]
    options = request.options
    assert (options.temperature, options.max_output_tokens, options.stop, options.seed) == (0.5, 99, ("END",), 7)
    assert options.reasoning_effort == "low"
    assert options.output_schema is not None
    schema = read_json(bytes(options.output_schema))
    assert (schema["type"], schema["schema"]["type"]) == ("json_schema", "object")
    assert schema["schema"]["properties"]["people"]["type"] == ["integer", "null"]
    assert sorted(options.extra) == ["generationConfig", "safetySettings", "tools"]
    assert read_json(bytes(options.extra["generationConfig"]))["topK"] == 3


def test_the_sdks_media_become_data_urls_in_the_standard_alphabet() -> None:
    """The Python SDK sends URL-safe base64, which no other provider takes."""
    wire = Wire(_rounds(ANSWER))
    contents = [
        types.Part.from_bytes(data=PNG, mime_type="image/png"),
        types.Part.from_bytes(data=b"%PDF", mime_type="application/pdf"),
        types.Part.from_uri(file_uri="https://example.org/a.jpg", mime_type="image/jpeg"),
        "What is this?",
    ]
    wire.client().models.generate_content(model="m", contents=contents)
    assert wire.requests[0].items == (
        MessageItem(
            role="user",
            content=(
                ImagePart(url="data:image/png;base64,iVBOR/v//g=="),
                FilePart(url="data:application/pdf;base64,JVBERg=="),
                ImagePart(url="https://example.org/a.jpg"),
                TextPart(text="What is this?"),
            ),
        ),
    )


def test_a_call_comes_whole_in_one_chunk() -> None:
    """The SDK reads the arguments of a call from one part; the tools of the request are offered by name."""
    wire = Wire(_rounds(TWO_CALLS))
    stream_of = wire.client().models.generate_content_stream(
        model="m",
        contents="hi",
        config=_config(automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)),
    )
    calls = [each for part in stream_of for each in part.function_calls or ()]
    assert [(each.id, each.name, each.args) for each in calls] == [
        ("up_1", "get_weather", {"city": "Paris"}),
        ("call_x0005", "get_time", {}),
    ]
    assert [tool.name for tool in wire.requests[0].tools] == ["get_weather", "get_time"]
