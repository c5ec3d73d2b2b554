"""Whole requests: what stock clients send is read, what contradicts itself is refused by name."""

import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import (
    CallItem,
    Extra,
    MessageItem,
    OpaqueItem,
    ReferenceItem,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.core.request import Note, Options, Request, Surface
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec
from treadle.protocols.responses import read_request

ATTACHED = Note(
    code="input_call_attached",
    action="kept",
    message="an empty assistant message before a call is the call's own turn",
    field="input",
)
ADDED = Note(code="input_result_added", action="kept", message="a result was taken from the input", field="input")


def body(**fields: Any) -> bytes:
    """Write a request with these fields."""
    return json.dumps({"model": "m", "input": "hi", **fields}).encode()


def raw(value: Any) -> msgspec.Raw:
    """Return a value as the tests' bodies spell it."""
    return msgspec.Raw(json.dumps(value).encode())


def test_smallest_request_has_the_official_defaults() -> None:
    """A text alone is one user message, stored, not streamed, with tools left to the model."""
    assert read_request(body()) == Request(
        protocol="responses",
        model="m",
        items=(text_message("user", "hi"),),
        options=Options(extra_protocol="responses"),
    )


def test_every_field_has_its_place() -> None:
    """What Treadle acts on is typed, what it echoes is on the surface, the rest is carried as it came."""
    text = {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"}
    reasoning = {"effort": "high", "summary": "auto"}
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "description": "d"}]
    request = read_request(
        body(
            instructions="be brief",
            tools=tools,
            tool_choice="required",
            parallel_tool_calls=False,
            max_tool_calls=3,
            max_output_tokens=100,
            temperature=0,
            top_p=0.5,
            reasoning=reasoning,
            text=text,
            store=False,
            background=False,
            previous_response_id="resp_0",
            stream=True,
            metadata={"a": "b"},
            include=["reasoning.encrypted_content"],
            prompt_cache_key="k",
            brand_new={"x": 1},
            user=None,
        )
    )
    assert request == Request(
        protocol="responses",
        model="m",
        items=(text_message("user", "hi"),),
        instructions="be brief",
        tools=(ToolSpec(name="f", description="d", parameters=raw({"type": "object"}), strict=True),),
        tool_choice=ToolChoice(mode="required"),
        options=Options(
            max_output_tokens=100,
            temperature=0.0,
            top_p=0.5,
            parallel_tool_calls=False,
            reasoning_effort="high",
            output_schema=raw(text["format"]),
            extra={
                "reasoning": raw(reasoning),
                "text": raw(text),
                "include": raw(["reasoning.encrypted_content"]),
                "prompt_cache_key": raw("k"),
                "metadata": raw({"a": "b"}),
                "brand_new": raw({"x": 1}),
            },
            extra_protocol="responses",
        ),
        surface=Surface(
            stream=True,
            metadata=raw({"a": "b"}),
            tools_echo=raw(tools),
            tool_choice_echo=raw("required"),
        ),
        store=False,
        previous_response_id="resp_0",
        max_tool_calls=3,
    )


def test_null_is_the_same_as_absent() -> None:
    """Clients that send every field, null where unset, get the defaults."""
    names = (
        "instructions tools tool_choice parallel_tool_calls max_tool_calls max_output_tokens temperature top_p"
        " reasoning text metadata store background stream previous_response_id conversation prompt user"
    )
    assert read_request(body(**dict.fromkeys(names.split()))) == read_request(body())


@pytest.mark.parametrize("format_", [{"type": "text"}, None])
def test_plain_text_is_no_output_schema(format_: Any) -> None:
    """Asking for plain text asks for nothing."""
    assert read_request(body(text={"format": format_})).options.output_schema is None


def test_an_empty_text_is_an_input_and_an_empty_list_is_none() -> None:
    """Somebody said nothing, which is not the same as nobody."""
    assert read_request(body(input="")).items == (MessageItem(role="user"),)
    assert read_request(body(input=[])).items == ()


def test_conversation_is_carried() -> None:
    """A conversation gives the history, so an input is not needed beside it."""
    request = read_request(json.dumps({"model": "m", "conversation": "conv_1"}).encode())
    assert (request.items, request.options.extra) == ((), {"conversation": raw("conv_1")})


def test_background_request_is_stored() -> None:
    """A background request is one that can be asked for later."""
    request = read_request(body(background=True))
    assert (request.background, request.store) == (True, True)


def test_multi_turn_example_of_the_responses_proxy() -> None:
    """An assistant message with empty content before a call is only the call; the output answers it."""
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    request = read_request(
        body(
            input=[
                {"type": "message", "role": "user", "content": "What's the weather?"},
                {"type": "message", "role": "assistant", "content": ""},
                {"type": "function_call", "call_id": "call_xyz", "name": "get_weather", "arguments": '{"a":1}'},
                {"type": "function_call_output", "call_id": "call_xyz", "output": '{"temp":72}'},
            ],
            tools=[tool],
            tool_choice={"type": "function", "function": {"name": "get_weather"}},
            stream=True,
        )
    )
    assert request.items == (
        text_message("user", "What's the weather?"),
        CallItem(call_id="call_xyz", name="get_weather", arguments='{"a":1}'),
        ResultItem(call_id="call_xyz", output=(TextPart(text='{"temp":72}'),)),
    )
    assert request.tools == (ToolSpec(name="get_weather", parameters=raw({"type": "object"})),)
    assert request.tool_choice == ToolChoice(mode="named", name="get_weather")
    assert request.notes == (ATTACHED, ADDED)


def test_codex_with_an_unknown_model_name() -> None:
    """The tools are functions, a namespace of functions and a hosted one; the prompt is developer messages."""
    request = read_request(
        body(
            input=[
                {"type": "message", "id": "msg_a", "role": "developer", "content": [_text("rules")]},
                {"type": "message", "id": "msg_b", "role": "user", "content": [_text("<environment>")]},
                {"type": "message", "id": "msg_c", "role": "user", "content": [_text("go")]},
            ],
            tools=[
                {"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object"}},
                {
                    "type": "namespace",
                    "name": "multi_agent_v1",
                    "description": "agents",
                    "tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object"}}],
                },
                {"type": "web_search", "external_web_access": False},
            ],
            tool_choice="auto",
            parallel_tool_calls=True,
            store=False,
            stream=True,
            include=["reasoning.encrypted_content"],
            prompt_cache_key="k",
            client_metadata={"x": "y"},
        )
    )
    assert request.items == (
        text_message("developer", "rules", "msg_a"),
        text_message("user", "<environment>", "msg_b"),
        text_message("user", "go", "msg_c"),
    )
    schema = raw({"type": "object"})
    assert request.tools == (
        ToolSpec(name="exec_command", parameters=schema, strict=False),
        ToolSpec(
            name="multi_agent_v1__spawn",
            parameters=schema,
            namespace="multi_agent_v1",
            extra=Extra(protocol="responses", fields={"namespace.description": raw("agents")}),
        ),
    )
    message = "the hosted tool 'web_search' is only offered to upstreams of the Responses API"
    assert request.notes == (Note(code="hosted_tool", action="kept", message=message, field="tools[2]"),)
    assert sorted(request.options.extra) == ["client_metadata", "include", "prompt_cache_key", "tools"]
    assert request.options.extra["tools"] == raw([{"type": "web_search", "external_web_access": False}])


def test_what_only_hosted_tools_heed_is_kept_beside_them() -> None:
    """The choice of one, and how often they may be called; Treadle heeds the latter for its own tools too."""
    search = {"type": "web_search"}
    request = read_request(body(tools=[search], tool_choice=search, max_tool_calls=3))
    assert (request.tool_choice, request.max_tool_calls) == (AUTO, 3)
    assert request.options.extra == {"tools": raw([search]), "tool_choice": raw(search), "max_tool_calls": raw(3)}


def test_codex_lite_carries_its_tools_in_the_input() -> None:
    """Without a `tools` key the tools are an item of the input; its custom calls and array outputs are read."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    functions = [
        {"type": "custom", "name": "exec", "description": "JavaScript", "format": grammar},
        {"type": "function", "name": "wait", "parameters": {"type": "object"}},
    ]
    clock = [{"type": "function", "name": "now", "parameters": {"type": "object"}}]
    request = read_request(
        body(
            input=[
                {
                    "type": "additional_tools",
                    "id": "at_1",
                    "role": "developer",
                    "tools": [
                        {"type": "namespace", "name": "functions", "description": "", "tools": functions},
                        {"type": "namespace", "name": "clock", "description": "", "tools": clock},
                    ],
                },
                {"type": "message", "role": "user", "content": [_text("go")]},
                {
                    "type": "custom_tool_call",
                    "call_id": "call_1",
                    "name": "exec",
                    "namespace": "functions",
                    "input": "text('hi')",
                },
                {"type": "custom_tool_call_output", "id": "fco_1", "call_id": "call_1", "output": [_text("hi")]},
                {"type": "function_call", "call_id": "call_2", "name": "now", "namespace": "clock", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_2", "output": "12:00"},
            ],
            parallel_tool_calls=False,
            reasoning={"effort": "medium", "context": "all_turns"},
        )
    )
    schema = raw({"type": "object"})
    assert request.tools == (
        ToolSpec(name="exec", description="JavaScript", kind="custom", format=raw(grammar), namespace="functions"),
        ToolSpec(name="wait", parameters=schema, namespace="functions"),
        ToolSpec(name="clock__now", parameters=schema, namespace="clock"),
    )
    assert request.items == (
        text_message("user", "go"),
        CallItem(call_id="call_1", name="exec", arguments="text('hi')", kind="custom", namespace="functions"),
        ResultItem(id="fco_1", call_id="call_1", output=(TextPart(text="hi"),), kind="custom"),
        CallItem(call_id="call_2", name="clock__now", arguments="{}", namespace="clock"),
        ResultItem(call_id="call_2", output=(TextPart(text="12:00"),)),
    )
    assert request.notes == (msgspec.structs.replace(ADDED, count=2),)


def test_ai_sdk_refers_to_stored_items() -> None:
    """Earlier items come back as references, with or without a type; nothing is looked up here."""
    request = read_request(
        body(
            input=[
                {"role": "user", "content": [_text("q")]},
                {"type": "item_reference", "id": "rs_1"},
                {"id": "msg_1"},
                {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
            ]
        )
    )
    assert request.items == (
        text_message("user", "q"),
        ReferenceItem(id="rs_1"),
        ReferenceItem(id="msg_1"),
        ResultItem(call_id="call_1", output=(TextPart(text="ok"),)),
    )


def test_compaction_trigger_is_kept() -> None:
    """A kind of item that has no canonical form is carried exactly."""
    trigger = {"type": "compaction_trigger", "id": "cmp_1"}
    assert read_request(body(input=[trigger])).items == (
        OpaqueItem(id="cmp_1", protocol="responses", raw=raw(trigger)),
    )


def test_half_of_a_surrogate_pair_is_replaced_and_noted() -> None:
    """A text that a JavaScript client cut inside an emoji is read, not refused."""
    request = read_request(b'{"model":"m","input":"cut \\ud83d, whole \\ud83d\\ude00, escaped \\\\ud83d"}')
    assert request.items == (text_message("user", "cut \ufffd, whole 😀, escaped \\ud83d"),)
    assert request.notes == (
        Note(code="lone_surrogate", action="coerced", message="half of a surrogate pair was replaced by U+FFFD"),
    )


@pytest.mark.parametrize(("word", "choice"), [("auto", AUTO), ("none", NONE)])
def test_tool_choice_words(word: str, choice: ToolChoice) -> None:
    """The plain words mean what they say."""
    assert read_request(body(tool_choice=word)).tool_choice == choice


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"input": 3}, "input", "invalid_type"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"tools": {}}, "tools", "invalid_type"),
        ({"metadata": []}, "metadata", "invalid_type"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort", "invalid_type"),
        ({"text": {"format": {}}}, "text.format.type", "missing_required_parameter"),
        ({"text": {"format": "json"}}, "text.format", "invalid_type"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"max_tool_calls": -1}, "max_tool_calls", "invalid_value"),
        ({"max_output_tokens": True}, "max_output_tokens", "invalid_type"),
        ({"background": True, "store": False}, "store", "invalid_value"),
        (
            {"previous_response_id": "resp_1", "conversation": {"id": "conv_1"}},
            "conversation",
            "mutually_exclusive_parameters",
        ),
        ({"tool_choice": "sometimes"}, "tool_choice", "invalid_value"),
        ({"tool_choice": 3}, "tool_choice", "invalid_type"),
        ({"tools": [{"type": "function", "name": 3}]}, "tools[0].name", "invalid_type"),
        ({"input": [{}]}, "input[0].type", "missing_required_parameter"),
        ({"input": ["text"]}, "input[0]", "invalid_type"),
    ],
)
def test_bad_requests_name_their_field(fields: dict[str, Any], param: str, code: str) -> None:
    """A wrong type, a missing field or a contradiction is refused with the path of the field."""
    with pytest.raises(ProtocolError) as caught:
        read_request(body(**fields))
    info = caught.value.info
    assert (info.param, info.code, info.status) == (param, code, 400)
    assert param in info.message


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"model":"m","input":"\xff"}', b"[" * 9000, b'{"a":NaN}'])
def test_bodies_that_are_not_an_object_are_refused(data: bytes) -> None:
    """Bytes that are not a JSON object give an error in words, never a traceback."""
    with pytest.raises(ProtocolError) as caught:
        read_request(data)
    assert caught.value.info.status == 400


def test_depth_without_end_is_refused() -> None:
    """A field that nests without end cannot exhaust the stack, not even one that is only carried."""
    with pytest.raises(ProtocolError):
        read_request(b'{"model":"m","input":"hi","x":' + b"[" * 90_000 + b"]" * 90_000 + b"}")


@pytest.mark.parametrize("model", ["", '"model":null,', '"model":"",'])
def test_a_request_may_leave_the_model_to_the_default(model: str) -> None:
    """`default_model` answers it."""
    assert read_request(b'{%b"input":"hi"}' % model.encode()).model == ""


def test_messages_keep_the_order_of_the_input() -> None:
    """System and developer messages stay where they were sent, anywhere in the input."""
    roles = ["user", "system", "assistant", "developer", "user"]
    request = read_request(body(input=[{"role": role, "content": role} for role in roles]))
    assert [item.role for item in request.items if isinstance(item, MessageItem)] == roles


def _text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}
