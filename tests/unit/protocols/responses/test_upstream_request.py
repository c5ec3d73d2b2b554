import json
from typing import Any

import msgspec
import pytest

from treadle.core.items import CallItem, Extra, MessageItem, TextPart, text_message, text_result
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec
from treadle.protocols.responses import write_request

HI = text_message("user", "hi")
F = ToolSpec(name="f")
C = ToolSpec(name="c", kind="custom", format=msgspec.Raw(b'{"type":"text"}'), description="runs")
N = ToolSpec(name="ns__g", namespace="ns", strict=True)
F_OUT = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
C_OUT = {"type": "custom", "name": "c", "description": "runs", "format": {"type": "text"}}


def raw(value: Any) -> msgspec.Raw:
    """Return a value as it stands on the wire."""
    return msgspec.Raw(json.dumps(value).encode())


def written(**fields: Any) -> dict[str, Any]:
    """Return the body of a small plan with these fields."""
    return json.loads(write_request(Plan(**{"items": (HI,), "model": "m", **fields})).body)


def notes(**fields: Any) -> list[tuple[str, str]]:
    """Return what is noted of a small plan with these fields."""
    plan = Plan(**{"items": (HI,), "model": "m", **fields})
    return [(note.code, note.action) for note in write_request(plan).notes]


def test_a_request_streams_and_is_not_stored() -> None:
    """The least that is sent, and nothing besides."""
    assert written() == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "hi"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_a_leading_system_text_becomes_the_instructions() -> None:
    """Only the first; what comes later stays in its place and role."""
    items = (text_message("system", "be brief"), text_message("developer", "d"), HI, text_message("system", "s"))
    body = written(items=items)
    assert body["instructions"] == "be brief"
    assert [(item["role"], item["content"]) for item in body["input"]] == [
        ("developer", "d"),
        ("user", "hi"),
        ("system", "s"),
    ]


def test_a_system_text_that_is_all_there_is_stays_the_input() -> None:
    """The API refuses a request without any input."""
    body = written(items=(text_message("system", "Tell a joke."),))
    assert body["input"] == [{"type": "message", "role": "system", "content": "Tell a joke."}]
    assert "instructions" not in body


@pytest.mark.parametrize(
    "first",
    [
        text_message("developer", "d"),
        MessageItem(role="system", content=(TextPart(text="a"), TextPart(text="b"))),
        MessageItem(role="system"),
        MessageItem(role="system", content=(TextPart(text="a"),), extra=Extra(protocol="responses", fields={})),
    ],
)
def test_other_leading_messages_stay_messages(first: MessageItem) -> None:
    """What is more than one plain system text would lose something as instructions."""
    body = written(items=(first, HI))
    assert "instructions" not in body
    assert len(body["input"]) == 2


def test_tools_are_flat_and_namespaces_together() -> None:
    """Functions and custom tools in order; `strict` only where it is set; a namespace holds its tools."""
    second = ToolSpec(name="ns__h", namespace="ns", description="d")
    body = written(tools=(F, N, C, second))
    assert body["tools"] == [
        F_OUT,
        {
            "type": "namespace",
            "name": "ns",
            "description": "Tools of ns.",
            "tools": [{**F_OUT, "name": "g", "strict": True}, {**F_OUT, "name": "h", "description": "d"}],
        },
        C_OUT,
    ]
    assert "tool_choice" not in body


def test_fields_of_a_tool_that_treadle_does_not_know_go_back_to_their_protocol() -> None:
    """Responses' own are written, those of others are noted."""
    own = ToolSpec(name="f", extra=Extra(protocol="responses", fields={"defer_loading": raw(True)}))
    other = ToolSpec(name="f", extra=Extra(protocol="messages", fields={"cache_control": raw({})}))
    assert written(tools=(own,))["tools"] == [{**F_OUT, "defer_loading": True}]
    assert written(tools=(other,))["tools"] == [F_OUT]
    assert notes(tools=(other,)) == [("field_dropped", "dropped")]


def test_hosted_tools_of_the_same_protocol_are_offered_too() -> None:
    """What only the upstream can run travels behind the tools that can be called."""
    options = Options(extra={"tools": raw([{"type": "web_search"}])}, extra_protocol="responses")
    assert written(options=options)["tools"] == [{"type": "web_search"}]
    assert written(options=options, tools=(F,))["tools"] == [F_OUT, {"type": "web_search"}]
    other = msgspec.structs.replace(options, extra_protocol="messages")
    assert "tools" not in written(options=other)
    assert notes(options=other) == [("hosted_tool", "dropped")]


def test_hosted_tools_that_a_chat_client_asks_for_are_offered() -> None:
    """Those that this API has too, with the choice of one; the others are noted."""
    extra = {
        "tools": raw([{"type": "web_search"}, {"type": "builtin_function", "function": {"name": "$search"}}]),
        "tool_choice": raw({"type": "web_search"}),
    }
    options = Options(extra=extra, extra_protocol="chat")
    body = written(options=options)
    assert (body["tools"], body["tool_choice"]) == ([{"type": "web_search"}], {"type": "web_search"})
    assert notes(options=options) == [("hosted_tool", "dropped")]


def test_a_namespace_keeps_what_it_is_for() -> None:
    """As its client described it, and not as a field of its tools."""
    about = Extra(protocol="responses", fields={"namespace.description": raw("agents"), "defer_loading": raw(True)})
    body = written(tools=(msgspec.structs.replace(N, extra=about),))
    (space,) = body["tools"]
    assert space["description"] == "agents"
    assert space["tools"] == [{**F_OUT, "name": "g", "strict": True, "defer_loading": True}]


def test_a_choice_of_a_hosted_tool_binds_the_first_round_only() -> None:
    """Behind the result of a server's tool the model is free, and where nothing may be called nothing is chosen."""
    extra = {"tools": raw([{"type": "web_search"}]), "tool_choice": raw({"type": "web_search"})}
    options = Options(extra=extra, extra_protocol="responses")
    call = CallItem(call_id="call_1", name="f", side="server")
    assert written(options=options)["tool_choice"] == {"type": "web_search"}
    assert "tool_choice" not in written(items=(HI, call, text_result(call, "r")), options=options)
    assert written(options=options, tool_choice=NONE)["tool_choice"] == "none"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (AUTO, None),
        (NONE, "none"),
        (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="named", name="f"), {"type": "function", "name": "f"}),
        (ToolChoice(mode="named", name="c"), {"type": "custom", "name": "c"}),
        (ToolChoice(mode="named", name="ns__g"), {"type": "function", "name": "g", "namespace": "ns"}),
        (ToolChoice(mode="named", name="gone"), {"type": "function", "name": "gone"}),
        (
            ToolChoice(mode="required", allowed=("c", "gone")),
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "c"}]},
        ),
        (ToolChoice(allowed=("gone",)), "none"),
        (ToolChoice(mode="none", allowed=("f",)), "none"),
    ],
)
@pytest.mark.parametrize("parallel", [None, True, False])
def test_every_choice_with_every_parallel_flag(choice: ToolChoice, expected: Any, parallel: bool | None) -> None:
    """The default is left out, and the flag goes only where calls are possible."""
    body = written(tools=(F, C, N), tool_choice=choice, options=Options(parallel_tool_calls=parallel))
    assert body.get("tool_choice") == expected
    assert body.get("parallel_tool_calls") == (None if choice.mode == "none" else parallel)


def test_without_tools_neither_choice_nor_flag_is_sent() -> None:
    """Upstreams refuse both where there is nothing to choose from."""
    body = written(tool_choice=ToolChoice(mode="required"), options=Options(parallel_tool_calls=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_options_have_their_places() -> None:
    """Known options are typed, extras of the protocol are merged around them."""
    schema = {"type": "json_schema", "name": "n", "schema": {}}
    options = Options(
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.25,
        reasoning_effort="low",
        output_schema=raw(schema),
        extra={
            "reasoning": raw({"summary": "auto", "effort": "high"}),
            "text": raw({"verbosity": "low", "format": {"type": "text"}}),
            "include": raw(["message.output_text.logprobs"]),
            "prompt_cache_key": raw("k"),
            "truncation": raw("auto"),
            "previous_response_id": raw("resp_1"),
            "conversation": raw("conv_1"),
            "background": raw(True),
            "store": raw(True),
            "stream_options": raw({}),
        },
        extra_protocol="responses",
    )
    body = written(options=options)
    assert {name: value for name, value in body.items() if name not in ("model", "input")} == {
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.25,
        "reasoning": {"summary": "auto", "effort": "low"},
        "text": {"verbosity": "low", "format": schema},
        "stream": True,
        "store": False,
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "truncation": "auto",
    }


@pytest.mark.parametrize("include", [["reasoning.encrypted_content"], "odd", [3], {}])
def test_sealed_reasoning_is_asked_for_once(include: Any) -> None:
    """Whatever the client wrote there."""
    options = Options(extra={"include": raw(include)}, extra_protocol="responses")
    assert written(options=options)["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(
    ("model", "include"),
    [
        ("gpt-4o", None),
        ("openai/gpt-4.1-mini", None),
        ("gpt-5-chat-latest", None),
        ("gpt-5.2-chat", None),
        ("gpt-5", ["reasoning.encrypted_content"]),
        ("o3", ["reasoning.encrypted_content"]),
    ],
)
def test_models_that_do_not_reason_are_not_asked_for_sealed_reasoning(model: str, include: Any) -> None:
    """They refuse it, also where the client asks for it itself."""
    for asked in ({}, {"include": raw(["reasoning.encrypted_content"])}):
        options = Options(extra=asked, extra_protocol="responses")
        assert written(model=model, options=options).get("include") == include


def test_fields_that_chat_shares_are_carried() -> None:
    """What means the same in both APIs goes on, the rest of Chat's is noted by name."""
    extra = {"user": raw("u"), "metadata": raw({"a": "b"}), "verbosity": raw("high"), "logit_bias": raw({})}
    options = Options(extra=extra, extra_protocol="chat")
    body = written(options=options)
    assert (body["user"], body["metadata"], body["text"]) == ("u", {"a": "b"}, {"verbosity": "high"})
    plan = Plan(items=(HI,), model="m", options=options)
    assert [note.message for note in write_request(plan).notes] == ["logit_bias: only chat knows it"]


def test_options_that_the_api_lacks_are_noted() -> None:
    """Stop sequences and seeds, a seed of zero too, are said to be lost."""
    options = Options(stop=("x",), seed=0)
    plan = Plan(items=(HI,), model="m", options=options)
    assert [(note.code, note.field) for note in write_request(plan).notes] == [
        ("option_dropped", "stop"),
        ("option_dropped", "seed"),
    ]
    assert notes(options=Options()) == []
