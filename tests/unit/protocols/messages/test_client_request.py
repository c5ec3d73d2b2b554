import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ProtocolError
from treadle.core.items import CallItem, OpaqueItem, text_message
from treadle.core.json import read_json
from treadle.core.request import Options, Request
from treadle.core.tool_definitions import AUTO
from treadle.protocols.messages import read_request

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}


def _read(**fields: Any) -> Request:
    return read_request(json.dumps({"model": "m", "messages": HI, **fields}).encode())


def _extra(request: Request) -> dict[str, Any]:
    return {name: read_json(bytes(raw)) for name, raw in request.options.extra.items()}


def test_the_smallest_request() -> None:
    """Nothing is made up, not even a bound on the answer."""
    request = _read()
    assert request == Request(
        protocol="messages",
        model="m",
        items=(text_message("user", "hi"),),
        options=Options(extra_protocol="messages"),
    )


def test_options_have_their_places_and_the_rest_is_kept() -> None:
    """What Treadle does not act on travels on as it was written."""
    request = _read(
        max_tokens=32000,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        stop_sequences=["a", "b"],
        stream=True,
        metadata={"user_id": "{}"},
        context_management={"edits": [{"type": "clear_thinking_20251015"}]},
        service_tier="auto",
        tomorrow=None,
    )
    options = request.options
    assert (options.max_output_tokens, options.temperature, options.top_p) == (32000, 0.5, 0.9)
    assert options.stop == ("a", "b")
    assert request.surface.stream
    assert _extra(request) == {
        "top_k": 40,
        "metadata": {"user_id": "{}"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "service_tier": "auto",
    }


def test_a_system_prompt_is_text_and_its_blocks_are_kept() -> None:
    """Only blocks say more than the text does."""
    blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    request = _read(system=blocks)
    assert request.instructions == "a\n\nb"
    assert _extra(request) == {"system": blocks}
    assert _read(system="a").instructions == "a"
    assert _extra(_read(system="a")) == {}
    assert _read(system=[]).instructions is None


def test_a_thread_that_goes_on_inherits() -> None:
    """One that begins is an ordinary request; threads are Treadle's business, not the upstream's."""
    request = _read(thread={"type": "continue", "previous_message_id": "msg_9"}, messages=[])
    assert (request.previous_response_id, request.inherits, request.items) == ("msg_9", True, ())
    begun = _read(thread={"type": "create"})
    assert (begun.previous_response_id, begun.inherits) == (None, False)
    assert _extra(begun) == {}


@pytest.mark.parametrize(
    ("fields", "effort", "kept"),
    [
        ({"output_config": {"effort": "high"}}, "high", {}),
        ({"thinking": {"type": "adaptive"}}, None, {"thinking": {"type": "adaptive"}}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        ),
        (
            {"thinking": {"budget_tokens": 9000}, "output_config": {"effort": "max", "x": 1}},
            "max",
            {"thinking": {"budget_tokens": 9000}, "output_config": {"effort": "max", "x": 1}},
        ),
        ({"thinking": {"budget_tokens": 9000}}, "medium", {"thinking": {"budget_tokens": 9000}}),
        ({"thinking": {"budget_tokens": 90000}}, "high", {"thinking": {"budget_tokens": 90000}}),
    ],
)
def test_thinking_is_an_effort_elsewhere(fields: dict[str, Any], effort: str | None, kept: dict[str, Any]) -> None:
    """A budget amounts to one; the client's own words are kept."""
    request = _read(**fields)
    assert request.options.reasoning_effort == effort
    assert _extra(request) == kept


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    ],
)
def test_an_output_schema_gets_the_name_that_others_demand(fields: dict[str, Any]) -> None:
    """In the form that all codecs share."""
    request = _read(**fields)
    assert request.options.output_schema is not None
    assert read_json(bytes(request.options.output_schema)) == {
        "type": "json_schema",
        "name": "output",
        "schema": SCHEMA,
    }
    assert _extra(request) == {}


def test_a_format_without_a_schema_is_any_object() -> None:
    """And plain text is what a model gives anyway."""
    request = _read(output_config={"format": {"type": "json_object"}})
    assert bytes(request.options.output_schema or b"") == b'{"type":"json_object"}'
    assert _read(output_config={"format": {"type": "text"}}).options.output_schema is None


def test_tools_of_the_provider_and_a_choice_of_them_are_kept() -> None:
    """The others are offered, wherever they are defined."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    late = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "late"}}}
    request = _read(
        tools=[search, {"name": "f"}],
        tool_choice={"type": "tool", "name": "web_search", "disable_parallel_tool_use": True},
        messages=[*HI, {"role": "system", "content": [late]}],
    )
    assert [spec.name for spec in request.tools] == ["f", "late"]
    assert request.tool_choice == AUTO
    assert request.options.parallel_tool_calls is False
    assert _extra(request) == {
        "tools": [search],
        "tool_choice": {"type": "tool", "name": "web_search", "disable_parallel_tool_use": True},
    }


def test_what_claude_code_sends_is_taken_whole() -> None:
    """System messages inside, betas' fields, deferred tools with a schema dialect, marks on blocks."""
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    request = _read(
        max_tokens=128000,
        stream=True,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc"},
            {"type": "text", "text": "You are", **mark},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "system", "content": "# Environment"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": "s"},
                    {
                        "type": "tool_use",
                        "id": "toolu_1",
                        "name": "Read",
                        "input": {"p": "a"},
                        "caller": {"type": "direct"},
                    },
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x", **mark}]},
        ],
        tools=[
            {
                "name": "Read",
                "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
                "defer_loading": True,
            }
        ],
        thinking={"type": "adaptive", "display": "omitted"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "medium"},
        metadata={"user_id": '{"device_id":"x"}'},
    )
    assert [type(item).__name__ for item in request.items] == [
        "MessageItem",
        "MessageItem",
        "ReasoningItem",
        "CallItem",
        "ResultItem",
    ]
    assert request.notes == ()
    assert set(request.options.extra) == {"system", "thinking", "context_management", "metadata"}


def test_lone_halves_are_mended() -> None:
    """A client's text may be cut inside an emoji."""
    request = read_request(b'{"model":"m","messages":[{"role":"user","content":"a\\ud83d"}]}')
    assert request.items == (text_message("user", "a\ufffd"),)
    assert [note.code for note in request.notes] == ["lone_surrogate"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"max_tokens": "x"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop_sequences": ["a", 5]}, "stop_sequences.1"),
        ({"stream": "yes"}, "stream"),
        ({"system": 5}, "system"),
        ({"system": [{"type": "text"}]}, "system.0.text"),
        ({"thread": {}}, "thread.type"),
        ({"thread": {"type": "continue"}}, "thread.previous_message_id"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": {}}, "tool_choice.type"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"thinking": "much"}, "thinking"),
        ({"thinking": {"budget_tokens": "x"}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": 5}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema", "schema": 5}}}, "output_config.format.schema"),
        ({"mcp_servers": {}}, "mcp_servers"),
    ],
)
def test_what_contradicts_the_types_is_refused_by_its_path(fields: dict[str, Any], param: str) -> None:
    """As the API itself writes a path; the message names it, for the envelope has no field for it."""
    with pytest.raises(ProtocolError) as caught:
        _read(**fields)
    assert caught.value.param == param
    assert param in caught.value.message


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"nul", b"[" * 100, b'{"a":' * 100])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    """With a code of its own."""
    with pytest.raises(ProtocolError) as caught:
        read_request(body)
    assert caught.value.info.code == "invalid_json"


keys = st.sampled_from(
    ["model", "messages", "role", "content", "type", "text", "tool_use", "tool_result", "system", "tools", "thread"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
)


@given(value=values)
def test_no_json_makes_the_reader_raise_anything_else(value: Any) -> None:
    """Refusals only."""
    body = {"model": "m", "messages": [{"role": "assistant", "content": [value]}], "tools": value, "system": value}
    for sent in (value, body):
        with suppress(ProtocolError):
            assert read_request(json.dumps(sent).encode()).protocol == "messages"


@pytest.mark.parametrize(("server", "kind"), [("theirs", OpaqueItem), ("ours", CallItem)])
def test_a_call_of_a_server_that_the_upstream_knows_stays_its_own(server: str, kind: type) -> None:
    """The servers of the request say which; a call of any other is one of Treadle's."""
    call = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": server, "input": {}}
    result = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []}
    request = _read(
        messages=[*HI, {"role": "assistant", "content": [call, result]}, *HI],
        mcp_servers=[{"type": "url", "name": "theirs", "url": "https://x"}, {"type": "url", "url": "https://y"}],
    )
    assert isinstance(request.items[1], kind)
