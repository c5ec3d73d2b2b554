import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import RequestError
from treadle.core.items import text_message
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Note, Options, Request, Surface
from treadle.core.tool_definitions import AUTO, ToolChoice, ToolSpec
from treadle.protocols.chat import read_request, write_request

RAW = msgspec.Raw
USER = {"role": "user", "content": "hi"}


def _body(**fields: Any) -> bytes:
    return write_json({"model": "m", "messages": [USER], **fields})


def _request(**fields: Any) -> Request:
    return Request(
        **{
            "protocol": "chat",
            "model": "m",
            "items": (text_message("user", "hi"),),
            "options": Options(extra_protocol="chat"),
            **fields,
        }
    )


def test_the_smallest_request() -> None:
    """Model and one message; everything else has its default."""
    assert read_request(_body()) == _request()


def test_every_option_finds_its_place() -> None:
    """What Treadle acts on is typed; what it does not know is kept as written; nulls are nothing."""
    request = read_request(
        _body(
            stream=True,
            stream_options={"include_usage": True},
            max_completion_tokens=5,
            temperature=1,
            top_p=0.5,
            stop=["a", "b"],
            seed=7,
            parallel_tool_calls=False,
            reasoning_effort="low",
            response_format=RAW(b'{"type": "json_object"}'),
            store=False,
            metadata={"k": "v"},
            n=1,
            logit_bias={"5": 1},
            user=None,
            vendor=[1],
        )
    )
    options = Options(
        max_output_tokens=5,
        temperature=1.0,
        top_p=0.5,
        stop=("a", "b"),
        seed=7,
        parallel_tool_calls=False,
        reasoning_effort="low",
        output_schema=RAW(b'{"type": "json_object"}'),
        extra={"logit_bias": RAW(b'{"5":1}'), "vendor": RAW(b"[1]"), "metadata": RAW(b'{"k":"v"}')},
        extra_protocol="chat",
    )
    surface = Surface(stream=True, include_usage=True, metadata=RAW(b'{"k":"v"}'))
    assert request == _request(options=options, surface=surface, store=False)


def test_nulls_are_defaults() -> None:
    """Clients that send every field as null ask for nothing."""
    names = "stream stream_options max_tokens temperature stop tools tool_choice parallel_tool_calls n store metadata"
    assert read_request(_body(**dict.fromkeys(names.split()))) == _request()


def test_one_stop_is_a_list_of_one() -> None:
    """`stop` may be a string."""
    assert read_request(_body(stop="a")).options.stop == ("a",)


def test_the_old_spelling_of_the_token_limit_is_remembered() -> None:
    """Servers that know only `max_tokens` get it back; the new spelling wins where both are given."""
    old = read_request(_body(max_tokens=9)).options
    assert (old.max_output_tokens, old.extra) == (9, {"max_tokens": RAW(b"9")})
    both = read_request(_body(max_tokens=9, max_completion_tokens=5)).options
    assert (both.max_output_tokens, both.extra) == (5, {})


def test_tools_and_choice() -> None:
    """Tools, a named choice."""
    tool = {"type": "function", "function": {"name": "f"}}
    request = read_request(_body(tools=[tool], tool_choice={"type": "function", "function": {"name": "f"}}))
    assert request == _request(tools=(ToolSpec(name="f"),), tool_choice=ToolChoice(mode="named", name="f"))


def test_legacy_functions_are_tools_and_one_call_at_a_time() -> None:
    """The answer must be spelled the old way, which has room for one call."""
    request = read_request(_body(functions=[{"name": "f"}], function_call={"name": "f"}))
    assert request == _request(
        tools=(ToolSpec(name="f"),),
        tool_choice=ToolChoice(mode="named", name="f"),
        options=Options(parallel_tool_calls=False, extra_protocol="chat"),
        surface=Surface(legacy_functions=True),
        notes=(
            Note(
                code="legacy_functions",
                action="emulated",
                message="an answer shows the first of its calls only",
                field="functions",
            ),
        ),
    )


def test_several_choices_are_asked_of_treadle_not_of_the_upstream() -> None:
    """`n` is bounded, and no option of the model call."""
    request = read_request(_body(n=8))
    assert request == _request(surface=Surface(choices=8))


@pytest.mark.parametrize(
    ("given", "schema", "extra"),
    [
        ({"type": "text"}, None, {}),
        ({"type": "json_object"}, {"type": "json_object"}, {}),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}},
            {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            {},
        ),
        ({"type": "grammar", "value": "x"}, None, {"response_format": {"type": "grammar", "value": "x"}}),
        ({"type": "json_schema"}, None, {"response_format": {"type": "json_schema"}}),
    ],
)
def test_the_response_format_is_flat_in_the_options(given: Any, schema: Any, extra: Any) -> None:
    """The one canonical form; kinds that only Chat's servers know travel as they are, and come out as they went in."""
    options = read_request(_body(response_format=given)).options
    assert (None if options.output_schema is None else read_json(bytes(options.output_schema))) == schema
    assert {name: read_json(bytes(raw)) for name, raw in options.extra.items()} == extra
    body = read_json(write_request(Plan(items=(), model="m", options=options)).body)
    assert body.get("response_format") == (None if given == {"type": "text"} else given)


def test_tools_that_only_the_upstream_can_run_reach_it() -> None:
    """They stand behind those that can be called back."""
    kept = {"type": "builtin_function", "function": {"name": "$web_search"}}
    request = read_request(_body(tools=[kept, {"type": "function", "function": {"name": "f"}}]))
    assert request.tools == (ToolSpec(name="f"),)
    plan = Plan(items=request.items, model="m", tools=request.tools, options=request.options)
    tools = read_json(write_request(plan).body)["tools"]
    assert [tool["type"] for tool in tools] == ["function", "builtin_function"]


@pytest.mark.parametrize("name", ["verbosity", "prediction", "web_search_options", "modalities", "audio", "logprobs"])
def test_options_that_treadle_does_not_act_on_reach_a_chat_upstream(name: str) -> None:
    """As they were written."""
    request = read_request(_body(**{name: {"a": [1, None]}}))
    plan = Plan(items=request.items, model="m", options=request.options)
    assert read_json(write_request(plan).body)[name] == {"a": [1, None]}


def test_functions_beside_tools_are_dropped_and_noted() -> None:
    """The newer form wins."""
    request = read_request(_body(tools=[{"type": "function", "name": "f"}], functions=[{"name": "g"}]))
    assert request.tools == (ToolSpec(name="f"),)
    assert [note.code for note in request.notes] == ["functions_dropped"]


def test_lone_surrogates_are_mended_and_noted() -> None:
    """A text that was cut inside an emoji does not cost the conversation."""
    request = read_request(rb'{"model":"m","messages":[{"role":"user","content":"a\ud83d \ud83d\ude00"}]}')
    assert request.items == (text_message("user", "a\ufffd 😀"),)
    assert [(note.code, note.count) for note in request.notes] == [("lone_surrogate", 1)]


def test_a_byte_order_mark_is_skipped() -> None:
    """Some editors write one."""
    assert read_request(b"\xef\xbb\xbf" + _body()) == _request()


BAD: list[tuple[bytes, str | None, str]] = [
    (b"", None, "invalid_json"),
    (b"{", None, "invalid_json"),
    (b"5", None, "invalid_json"),
    (b"[]", None, "invalid_json"),
    (b"{} x", None, "invalid_json"),
    (b'{"a":NaN}', None, "invalid_json"),
    (b'{"model":"\xff"}', None, "invalid_json"),
    ('{"model":"m"}'.encode("utf-16"), None, "invalid_json"),
    (b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}", None, "invalid_json"),
    (b'{"a":' + b"[" * 200_000 + b"}", None, "invalid_json"),
    (b'{"a":[' + b"[]," * 250_000 + b"[]]}", None, "invalid_json"),
    (b"{}", "messages", "missing_required_parameter"),
    (b'{"model":5}', "model", "invalid_type"),
    (b'{"model":"m"}', "messages", "missing_required_parameter"),
    (b'{"model":"m","messages":{}}', "messages", "invalid_type"),
    (b'{"model":"m","messages":[]}', "messages", "invalid_value"),
    (_body(n=9), "n", "invalid_value"),
    (_body(n=1000), "n", "invalid_value"),
    (_body(response_format={"type": "json_schema", "json_schema": []}), "response_format.json_schema", "invalid_type"),
    (_body(n=0), "n", "invalid_value"),
    (_body(n="1"), "n", "invalid_type"),
    (_body(stream="yes"), "stream", "invalid_type"),
    (_body(stream_options=[]), "stream_options", "invalid_type"),
    (_body(stream_options={"include_usage": 1}), "stream_options.include_usage", "invalid_type"),
    (_body(max_tokens=-1), "max_tokens", "invalid_value"),
    (_body(max_tokens=RAW(b"9" * 5000)), "max_tokens", "invalid_type"),
    (_body(max_completion_tokens=1.5), "max_completion_tokens", "invalid_type"),
    (_body(temperature="hot"), "temperature", "invalid_type"),
    (_body(temperature=RAW(b"1e999")), "temperature", "invalid_type"),
    (_body(stop=[1]), "stop[0]", "invalid_type"),
    (_body(seed="x"), "seed", "invalid_type"),
    (_body(parallel_tool_calls="x"), "parallel_tool_calls", "invalid_type"),
    (_body(response_format="json"), "response_format", "invalid_type"),
    (_body(metadata=[]), "metadata", "invalid_type"),
    (_body(store=1), "store", "invalid_type"),
    (_body(tools={}), "tools", "invalid_type"),
    (_body(tools=[1]), "tools[0]", "invalid_type"),
    (_body(functions=[{}]), "functions[0].name", "missing_required_parameter"),
    (_body(functions=[{"name": "f"}], function_call=5), "function_call", "invalid_type"),
    (_body(tool_choice="perhaps"), "tool_choice", "invalid_value"),
    (_body(messages=[USER, USER, {"role": "user", "content": 5}]), "messages[2].content", "invalid_type"),
]


@pytest.mark.parametrize(("body", "param", "code"), BAD, ids=[str(index) for index in range(len(BAD))])
def test_bad_input_is_refused_by_name(body: bytes, param: str | None, code: str) -> None:
    """A 400 that names the field, never another exception."""
    with pytest.raises(RequestError) as caught:
        read_request(body)
    info = caught.value.info
    assert (info.param, info.code, info.status) == (param, code, 400)


_INNER_NAMES = ["role", "content", "tool_calls", "function", "name", "id", "type", "tool_call_id", "text", "arguments"]
_OUTER_NAMES = ["model", "messages", "tools", "tool_choice", "functions", "function_call", "stream", "stop", "n"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["user", "tool", "assistant", "function", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_INNER_NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(_OUTER_NAMES), _JSON))
def test_any_json_is_a_request_or_a_refusal(value: dict[str, Any]) -> None:
    """Nothing but a RequestError ever comes out of hostile JSON."""
    with contextlib.suppress(RequestError):
        assert read_request(write_json({"model": "m", "messages": [USER], **value})).protocol == "chat"


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_cleanly(body: bytes) -> None:
    """Random bytes are never a request and never a crash."""
    with pytest.raises(RequestError):
        read_request(body)


def test_allowed_tools_leave_out_those_that_the_upstream_runs() -> None:
    """Only tools that are called can be named there; what is not allowed is not offered."""
    tools = [{"type": "function", "function": {"name": "f"}}, {"type": "browser_search"}]
    allowed = {"mode": "auto", "tools": tools[:1]}
    request = read_request(_body(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed}))
    assert "tools" not in request.options.extra
    assert [(note.code, note.action) for note in request.notes] == [("tool_kept", "kept"), ("hosted_tool", "dropped")]


def test_a_choice_of_a_tool_that_the_upstream_runs_is_kept_for_it() -> None:
    """The canonical choice is free, for no other upstream could obey it."""
    choice = {"type": "browser_search"}
    request = read_request(_body(tools=[choice], tool_choice=choice))
    assert request.tool_choice == AUTO
    kept = RAW(write_json(choice))
    assert request.options.extra == {"tools": RAW(write_json([choice])), "tool_choice": kept}
