from typing import Any

import msgspec
import pytest
from anthropic.types.beta import message_create_params
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from treadle.core.items import (
    AnyItem,
    CallItem,
    Extra,
    FilePart,
    ImagePart,
    MessageItem,
    OpaquePart,
    TextPart,
    text_message,
    text_result,
)
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Options, Request
from treadle.core.tool_definitions import ToolChoice, ToolSpec
from treadle.protocols.messages import read_request, write_request

USER = text_message("user", "hi")
RAW = msgspec.Raw


def _written(*items: AnyItem, provider: str = "", **fields: Any) -> tuple[dict[str, Any], list[str]]:
    written = write_request(Plan(items=items, model="m", **fields), provider=provider)
    return read_json(written.body), [note.code for note in written.notes]


def _own(**fields: Any) -> Options:
    extra = {name: RAW(write_json(value)) for name, value in fields.items()}
    return Options(max_output_tokens=10, extra=extra, extra_protocol="messages")


def _again(request: Request, provider: str = "anthropic") -> dict[str, Any]:
    """Return the body that goes upstream for a request that came in."""
    system = (text_message("system", request.instructions),) if request.instructions else ()
    plan = Plan(
        items=(*system, *request.items),
        model=request.model,
        options=request.options,
        tools=request.tools,
        tool_choice=request.tool_choice,
    )
    return read_json(write_request(plan, provider=provider).body)


def test_the_smallest_body_streams_within_a_bound() -> None:
    """The API demands one; that it was set is said."""
    assert _written(USER) == (
        {"model": "m", "max_tokens": 8192, "messages": [{"role": "user", "content": "hi"}], "stream": True},
        ["max_tokens_default"],
    )


def test_options_are_spelled_as_the_api_does() -> None:
    """What it has no word for is noted."""
    options = Options(
        max_output_tokens=10, temperature=1.5, top_p=0.5, stop=("a", " "), seed=7, reasoning_effort="minimal"
    )
    body, codes = _written(USER, options=options)
    assert {name: body[name] for name in ("max_tokens", "temperature", "top_p", "stop_sequences", "output_config")} == {
        "max_tokens": 10,
        "temperature": 1,
        "top_p": 0.5,
        "stop_sequences": ["a"],
        "output_config": {"effort": "low"},
    }
    assert codes == ["seed_dropped", "stop_dropped", "temperature_capped", "effort_coerced"]


@pytest.mark.parametrize(
    ("effort", "expected", "codes"),
    [
        ("high", {"output_config": {"effort": "high"}}, []),
        ("max", {"output_config": {"effort": "max"}}, []),
        ("none", {"thinking": {"type": "disabled"}}, ["effort_coerced"]),
        (None, {}, []),
    ],
)
def test_an_effort_of_another_api_is_carried(effort: str | None, expected: dict[str, Any], codes: list[str]) -> None:
    """None at all is disabled thinking."""
    body, noted = _written(USER, options=Options(max_output_tokens=1, reasoning_effort=effort))
    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == expected
    assert noted == codes


@pytest.mark.parametrize(
    ("schema", "expected", "codes"),
    [
        (
            b'{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}',
            {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            [],
        ),
        (b'{"type":"json_object"}', None, ["json_object_dropped"]),
    ],
)
def test_an_output_schema_has_no_name_here(schema: bytes, expected: Any, codes: list[str]) -> None:
    """Without a schema the API gives no JSON."""
    body, noted = _written(USER, options=Options(max_output_tokens=1, output_schema=RAW(schema)))
    assert body.get("output_config") == expected
    assert noted == codes


def test_kept_fields_go_back_and_those_of_others_do_not() -> None:
    """They never replace what Treadle itself says."""
    body, codes = _written(USER, options=_own(top_k=4, metadata={"user_id": "u"}, stream=False, model="x"))
    assert (body["top_k"], body["metadata"], body["stream"], body["model"]) == (4, {"user_id": "u"}, True, "m")
    assert codes == []
    foreign = Options(max_output_tokens=1, extra={"logit_bias": RAW(b"{}")}, extra_protocol="chat")
    body, codes = _written(USER, options=foreign)
    assert "logit_bias" not in body
    assert codes == ["option_dropped"]


def test_the_system_prompt_is_text_or_the_clients_own_blocks() -> None:
    """The blocks stand only for the very text that was read from them."""
    blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    system, more = text_message("system", "a"), text_message("developer", "b")
    assert _written(system, USER)[0]["system"] == "a"
    assert _written(system, USER, options=_own(system=blocks))[0]["system"] == blocks
    assert _written(system, more, USER, options=_own(system=blocks))[0]["system"] == [
        *blocks,
        {"type": "text", "text": "b"},
    ]
    assert _written(more, USER, options=_own(system=blocks))[0]["system"] == "b"
    picture = MessageItem(role="system", content=(ImagePart(url="u"), TextPart(text="a")))
    body, codes = _written(picture, USER, options=_own())
    assert body["system"] == "a"
    assert codes == ["part_dropped"]


def test_a_kept_choice_holds_until_treadle_makes_one() -> None:
    """The last call of a run may not call tools, whatever the client forced."""
    own = _own(tools=[{"type": "web_search_1", "name": "w"}], tool_choice={"type": "tool", "name": "w"})
    assert _written(USER, options=own)[0]["tool_choice"] == {"type": "tool", "name": "w"}
    assert _written(USER, options=own, tool_choice=ToolChoice(mode="none"))[0]["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}, "output_config": {"effort": "low"}},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high", "x": 1}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        },
        {"mcp_servers": [{"type": "url", "name": "w", "url": "https://x"}], "container": {"id": "c"}, "top_k": 1},
        {
            "system": [
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "b"},
            ]
        },
        {"system": "a", "stop_sequences": ["x"], "temperature": 0.5},
    ],
)
def test_a_request_of_this_api_goes_on_as_it_came(fields: dict[str, Any]) -> None:
    """Field by field, for an upstream of the same protocol."""
    sent = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": True, **fields}
    assert _again(read_request(write_json(sent))) == sent


def test_a_conversation_of_this_api_goes_on_as_it_came() -> None:
    """Blocks with their marks, signatures, citations, server tools and all."""
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi", **mark}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "text", "text": "a", "citations": [{"type": "char_location"}]},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1.0}, "caller": {"type": "direct"}},
                {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "r", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}],
                    **mark,
                },
                {"type": "text", "text": "and?"},
            ],
        },
    ]
    sent = {"model": "m", "max_tokens": 5, "messages": messages, "stream": True}
    assert _again(read_request(write_json(sent))) == sent


words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
marks = st.none() | st.just(Extra(protocol="messages", fields={"cache_control": RAW(b'{"type":"ephemeral"}')}))
parts = st.one_of(
    st.builds(TextPart, text=words, extra=marks),
    st.builds(ImagePart, url=st.just("https://example.org/a.png"), extra=marks),
    st.builds(FilePart, url=st.just("data:application/pdf;base64,AAAA"), filename=st.none() | words, extra=marks),
    st.builds(FilePart, url=st.just("data:text/plain;base64,aGk="), extra=marks),
    st.builds(OpaquePart, protocol=st.just("messages"), raw=st.just(RAW(b'{"type":"search_result","x":1}'))),
)
contents = st.lists(parts, min_size=1, max_size=3).map(tuple)
argument_texts = st.dictionaries(words, st.integers() | words, max_size=2).map(lambda value: write_json(value).decode())


@st.composite
def conversations(draw: st.DrawFn) -> tuple[AnyItem, ...]:
    """Draw a conversation that takes turns, as the canonical items have it."""
    items: list[AnyItem] = []
    for turn in range(draw(st.integers(1, 3))):
        items.append(MessageItem(role="user", content=draw(contents)))
        if draw(st.booleans()):
            items.append(
                MessageItem(
                    role="assistant",
                    content=draw(
                        st.lists(st.builds(TextPart, text=words, extra=marks), min_size=1, max_size=2).map(tuple)
                    ),
                )
            )
        names = draw(st.lists(words, max_size=3))
        calls = [
            CallItem(call_id=f"c{turn}.{n}", name=name, arguments=draw(argument_texts)) for n, name in enumerate(names)
        ]
        items += calls
        for call in calls:
            result = text_result(call, "", is_error=draw(st.booleans()))
            items.append(msgspec.structs.replace(result, output=draw(contents), rc="ok", extra=draw(marks)))
    items.append(MessageItem(role="user", content=draw(contents)))
    return tuple(items)


@given(items=conversations())
@settings(deadline=None)
def test_a_conversation_written_and_read_is_the_same(items: tuple[AnyItem, ...]) -> None:
    """Canonical to wire to canonical is the identity, but for neighbours of one role, which become one message."""
    body = write_request(Plan(items=items, model="m"), provider="p").body
    assert _joined(read_request(body).items) == _joined(items)


def _joined(items: tuple[AnyItem, ...]) -> list[AnyItem]:
    joined: list[AnyItem] = []
    for item in items:
        last = joined[-1] if joined else None
        if isinstance(item, MessageItem) and isinstance(last, MessageItem) and last.role == item.role:
            joined[-1] = msgspec.structs.replace(last, content=last.content + item.content)
        else:
            joined.append(item)
    return joined


def test_what_is_written_is_what_the_sdk_may_send() -> None:
    """The SDK's own types of a request accept a body with everything in it."""
    call = CallItem(call_id="a", name="f", arguments='{"x":1}')
    body, _ = _written(
        text_message("system", "s"),
        USER,
        call,
        text_result(call, "r", is_error=True),
        text_message("developer", "d"),
        tools=(ToolSpec(name="f", strict=True, description="d"),),
        tool_choice=ToolChoice(mode="required"),
        options=Options(
            parallel_tool_calls=False,
            reasoning_effort="high",
            output_schema=RAW(b'{"type":"json_schema","name":"n","schema":{"type":"object"}}'),
        ),
    )
    adapter: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsStreaming)
    checked = adapter.validate_python(body)
    assert set(checked) == set(body)


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        (Options(max_output_tokens=1), ()),
        (Options(max_output_tokens=1, betas=("a", "b")), (("anthropic-beta", "a,b"),)),
        (
            Options(max_output_tokens=1, api_version="2023-06-01", betas=("a",)),
            (("anthropic-version", "2023-06-01"), ("anthropic-beta", "a")),
        ),
    ],
)
def test_version_and_features_are_said_beside_the_body(options: Options, headers: tuple[Any, ...]) -> None:
    """Only those that the client named."""
    assert write_request(Plan(items=(USER,), model="m", options=options)).headers == headers


def test_a_kept_choice_binds_the_first_round_only() -> None:
    """Once a tool of Treadle's own has answered, the model may end: else it would be made to call without end."""
    extra = {
        "tools": msgspec.Raw(b'[{"type":"web_search_20250305","name":"web_search"}]'),
        "tool_choice": msgspec.Raw(b'{"type":"tool","name":"web_search"}'),
    }
    options = Options(max_output_tokens=9, extra=extra, extra_protocol="messages")
    asked = (text_message("user", "go"),)
    call = CallItem(call_id="c", name="look", arguments="{}", side="server")
    continued = (*asked, call, text_result(call, "seen"))
    bodies = [
        read_json(write_request(Plan(items=items, model="m", options=options)).body) for items in (asked, continued)
    ]
    assert [body.get("tool_choice") for body in bodies] == [{"type": "tool", "name": "web_search"}, None]
