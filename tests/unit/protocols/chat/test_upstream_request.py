from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    Extra,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    Role,
    TextPart,
    text_message,
    text_result,
)
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Note, Options
from treadle.core.tool_definitions import NONE, ToolChoice, ToolSpec
from treadle.protocols.chat import read_request, write_request

RAW = msgspec.Raw
USER = text_message("user", "hi")
A = CallItem(call_id="a", name="f", arguments='{"x":1}')
B = CallItem(call_id="b", name="g", arguments="{}")
TOOLS = (ToolSpec(name="f"), ToolSpec(name="g"))


def _written(*items: AnyItem, provider: str = "", **fields: Any) -> tuple[dict[str, Any], list[str]]:
    written = write_request(Plan(items=items, model="m", **fields), provider=provider)
    return read_json(written.body), [note.code for note in written.notes]


def _messages(*items: AnyItem, provider: str = "") -> tuple[list[Any], list[str]]:
    body, codes = _written(*items, provider=provider)
    return body["messages"], codes


def _wire_call(call: CallItem) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def test_the_smallest_body_always_streams_with_usage() -> None:
    """Nothing is sent that was not asked for: no tools, no choice, no parallel flag."""
    body, codes = _written(USER, options=Options(parallel_tool_calls=True), tool_choice=NONE)
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert codes == []


def test_a_turn_is_one_message_with_results_in_call_order() -> None:
    """Text and calls together, then the tool messages, whatever order the results came in."""
    items = (
        text_message("system", "s"),
        text_message("developer", "d"),
        USER,
        ReasoningItem(text=("hm",)),
        text_message("assistant", "look"),
        A,
        B,
        text_result(B, "rb"),
        text_result(A, "ra"),
        text_message("assistant", "done"),
    )
    assert _messages(*items) == (
        [
            {"role": "system", "content": "s"},
            {"role": "developer", "content": "d"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "look",
                "reasoning_content": "hm",
                "tool_calls": [_wire_call(A), _wire_call(B)],
            },
            {"role": "tool", "tool_call_id": "a", "content": "ra"},
            {"role": "tool", "tool_call_id": "b", "content": "rb"},
            {"role": "assistant", "content": "done"},
        ],
        [],
    )


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ((TextPart(text="no such file"),), "[error] no such file"),
        ((), "[error]"),
        ((TextPart(text='{"error":{"code":"failed"}}'),), '{"error":{"code":"failed"}}'),
    ],
)
def test_a_failed_result_says_so_in_its_text(output: tuple[TextPart, ...], content: str) -> None:
    """Chat has no flag for it; an error object tells it already."""
    result = ResultItem(call_id="a", output=output, is_error=True)
    messages, notes = _messages(A, result)
    assert messages[1] == {"role": "tool", "tool_call_id": "a", "content": content}
    assert notes == ([] if content.startswith("{") else ["error_flag"])


def test_texts_of_one_result_are_lines_of_their_own() -> None:
    """A tool that gives a list gives so many texts, of which the ends must not be lost."""
    texts = (TextPart(text="a.txt"), TextPart(text=""), TextPart(text="b.txt"))
    assert _messages(A, ResultItem(call_id="a", output=texts))[0][1]["content"] == "a.txt\nb.txt"
    assert _messages(ResultItem(call_id="a", output=texts))[0][0]["content"].endswith("] a.txt\nb.txt")


def test_calls_alone_have_null_content() -> None:
    """As the official API writes it."""
    messages, codes = _messages(A)
    assert messages[0] == {"role": "assistant", "content": None, "tool_calls": [_wire_call(A)]}
    assert codes == ["orphan_call"]
    assert messages[1]["tool_call_id"] == "a"
    assert "interrupted" in messages[1]["content"]


def test_images_in_results_follow_in_a_user_message() -> None:
    """Chat's tool messages are text only; nothing is dropped."""
    result = ResultItem(call_id="a", name="f", output=(TextPart(text="see"), ImagePart(url="data:x")))
    other = ResultItem(call_id="b", name="g", output=(ImagePart(url="data:y"),))
    messages, codes = _messages(A, B, result, other)
    marker = "[1 attachment(s) of this result follow in the next user message]"
    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "a", "content": f"see\n{marker}"},
        {"role": "tool", "tool_call_id": "b", "content": marker},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "[attached to the result of f (a)]"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
                {"type": "text", "text": "[attached to the result of g (b)]"},
                {"type": "image_url", "image_url": {"url": "data:y"}},
            ],
        },
    ]
    assert codes == ["result_attachment"]


def test_contents_of_several_parts_stay_arrays() -> None:
    """And names are kept."""
    item = MessageItem(role="user", content=(TextPart(text="a"), ImagePart(url="u")), name="n")
    assert _messages(item)[0] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}],
            "name": "n",
        }
    ]


def test_assistant_contents_of_every_kind() -> None:
    """Text joined, refusals in their own field, opaque parts in an array, nothing as an empty string."""
    refusing = MessageItem(role="assistant", content=(RefusalPart(text="no"),), name="n")
    opaque = OpaquePart(protocol="chat", raw=RAW(b'{"type":"audio"}'))
    texts = MessageItem(role="assistant", content=(TextPart(text="a"), TextPart(text="b")))
    odd = MessageItem(role="assistant", content=(TextPart(text="a"), opaque))
    assert _messages(refusing, texts, odd, MessageItem(role="assistant")) == (
        [
            {"role": "assistant", "content": None, "name": "n", "refusal": "no"},
            {"role": "assistant", "content": "ab"},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "audio"}]},
            {"role": "assistant", "content": ""},
        ],
        [],
    )


def test_opaque_items_pass_only_to_their_own_protocol() -> None:
    """Chat's are sent as they were, others are dropped and noted."""
    ours = OpaqueItem(protocol="chat", raw=RAW(b'{"role":"critic"}'))
    theirs = OpaqueItem(protocol="responses", raw=RAW(b"{}"))
    assert _messages(ours, theirs) == ([{"role": "critic"}], ["item_dropped"])


def test_custom_tools_are_written_as_they_are() -> None:
    """Definition, choice and history; whoever has no custom tools gets none in the plan."""
    call = CallItem(call_id="a", name="p", arguments='say "x"', kind="custom")
    choice = ToolChoice(mode="named", name="p")
    plan = {"tools": (ToolSpec(name="p", kind="custom"),), "tool_choice": choice}
    body, codes = _written(call, text_result(call, "ok"), **plan)
    custom = {"name": "p", "input": 'say "x"'}
    assert body["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "custom", "custom": custom}]},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]
    assert body["tools"] == [{"type": "custom", "custom": {"name": "p"}}]
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "p"}}
    assert codes == []


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (ToolChoice(), None, {}),
        (ToolChoice(), True, {"parallel_tool_calls": True}),
        (ToolChoice(mode="required"), False, {"tool_choice": "required", "parallel_tool_calls": False}),
        (NONE, True, {"tool_choice": "none"}),
        (
            ToolChoice(mode="named", name="f"),
            None,
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
    ],
)
def test_the_matrix_of_choice_and_parallel(choice: ToolChoice, parallel: bool | None, expected: dict[str, Any]) -> None:
    """none keeps the list of tools; the parallel flag goes only where calls may happen."""
    body, _ = _written(USER, tools=TOOLS, tool_choice=choice, options=Options(parallel_tool_calls=parallel))
    seen = {name: body[name] for name in ("tool_choice", "parallel_tool_calls") if name in body}
    assert seen == expected
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f", "g"]


def test_allowed_tools_narrow_the_list() -> None:
    """The list itself says it, so that every upstream understands."""
    body, _ = _written(USER, tools=TOOLS, tool_choice=ToolChoice(mode="required", allowed=("g",)))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["g"]
    assert body["tool_choice"] == "required"


def test_options_are_spelled_as_chat_does() -> None:
    """Every option, and the client's own extra fields, which cannot override ours."""
    options = Options(
        max_output_tokens=5,
        temperature=0.0,
        top_p=0.5,
        stop=("a",),
        seed=0,
        reasoning_effort="low",
        output_schema=RAW(b'{"type":"json_schema","name":"n"}'),
        extra={"logit_bias": RAW(b'{"5":1}'), "stream": RAW(b"false"), "model": RAW(b'"evil"')},
        extra_protocol="chat",
    )
    body, codes = _written(USER, options=options)
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_completion_tokens": 5,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["a"],
        "seed": 0,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n"}},
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"5": 1},
    }
    assert codes == []


def test_the_old_token_limit_keeps_its_spelling() -> None:
    """The client's own spelling is what its upstream understands."""
    request = read_request(b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9}')
    body, _ = _written(USER, options=request.options)
    assert body["max_tokens"] == 9
    assert "max_completion_tokens" not in body


def test_a_flat_output_schema_is_nested() -> None:
    """Responses writes the same fields one level higher."""
    schema = RAW(b'{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}')
    body, _ = _written(USER, options=Options(output_schema=schema))
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }


def test_extra_fields_of_another_protocol_are_dropped_and_noted() -> None:
    """Their names are said, their values are not."""
    options = Options(extra={"truncation": RAW(b'"auto"')}, extra_protocol="responses")
    body, codes = _written(USER, options=options)
    assert "truncation" not in body
    assert codes == ["option_dropped"]


def test_a_choice_of_a_tool_that_the_upstream_runs_binds_the_first_round() -> None:
    """Where that tool is offered; one that no Chat upstream has is noted with its choice."""
    search = RAW(b'{"type":"browser_search"}')
    options = Options(extra={"tools": RAW(b"[" + bytes(search) + b"]"), "tool_choice": search}, extra_protocol="chat")
    body, codes = _written(USER, options=options)
    assert (body["tool_choice"], codes) == ({"type": "browser_search"}, [])
    call = msgspec.structs.replace(A, side="server")
    later, _ = _written(USER, call, text_result(call, "r"), options=options)
    assert "tool_choice" not in later
    built_in = Options(extra={"tools": RAW(b'[{"type":"shell"}]'), "tool_choice": RAW(b'{"type":"shell"}')})
    none, lost = _written(USER, options=msgspec.structs.replace(built_in, extra_protocol="chat"))
    assert not {"tools", "tool_choice"} & set(none)
    assert lost == ["hosted_tool", "tool_choice_dropped"]


def test_metadata_stays_with_the_run() -> None:
    """OpenAI refuses it where nothing is stored; it is said to be kept, and a strict client is not refused."""
    request = read_request(b'{"model":"m","messages":[{"role":"user","content":"hi"}],"metadata":{"a":"b"}}')
    written = write_request(Plan(items=request.items, model="m", options=request.options))
    assert "metadata" not in read_json(written.body)
    assert [(note.code, note.action, note.field) for note in written.notes] == [("metadata_kept", "kept", "metadata")]


def test_blobs_go_back_only_to_their_provider() -> None:
    """A thought signature of one provider is noise to another."""
    blob = Blob(provider="google", kind="extra_content", data='{"sig":"x"}')
    call = msgspec.structs.replace(A, blobs=(blob,))
    same, same_codes = _messages(call, text_result(call, "r"), provider="google")
    other, other_codes = _messages(call, text_result(call, "r"), provider="openai")
    assert same[0]["tool_calls"] == [{**_wire_call(A), "extra_content": {"sig": "x"}}]
    assert other[0]["tool_calls"] == [_wire_call(A)]
    assert (same_codes, other_codes) == ([], ["blob_dropped"])


def test_state_of_an_answer_goes_back_only_to_provider_and_model() -> None:
    """Sealed reasoning and unknown fields, on whatever item they were kept; of audio, only its id."""
    kept = {"kind": "message_fields", "data": '{"audio":{"id":"a","data":"x"},"mood":"glad"}'}
    thought = ReasoningItem(text=("hm",), blobs=(_blob(kind="reasoning_details", data='[{"data":"1"}]'),))
    spoken = MessageItem(role="assistant", content=(TextPart(text="a"),), blobs=(_blob(**kept),))
    call = msgspec.structs.replace(A, blobs=(_blob(kind="reasoning_details", data='[{"data":"2"}]'),))
    items = (thought, spoken, call, text_result(call, "r"))
    bare = {"role": "assistant", "content": "a", "tool_calls": [_wire_call(A)], "reasoning_content": "hm"}
    (message, _), codes = _messages(*items, provider="p")
    assert message == {
        **bare,
        "audio": {"id": "a"},
        "mood": "glad",
        "reasoning_details": [{"data": "1"}, {"data": "2"}],
    }
    assert codes == []
    for provider, model in (("q", "m"), ("p", "n")):
        written = write_request(Plan(items=items, model=model), provider=provider)
        assert read_json(written.body)["messages"][0] == bare
        assert [(note.code, note.count) for note in written.notes] == [("blob_dropped", 3)]


def _blob(**fields: str) -> Blob:
    return Blob(provider="p", model="m", **fields)


def test_images_of_an_answer_have_their_own_field() -> None:
    """Upstreams refuse image parts in what the assistant said."""
    item = MessageItem(role="assistant", content=(TextPart(text="a"), ImagePart(url="data:x")))
    image = {"type": "image_url", "index": 0, "image_url": {"url": "data:x"}}
    assert _messages(item) == ([{"role": "assistant", "content": "a", "images": [image]}], [])


def test_annotations_of_an_answer_are_dropped_and_noted() -> None:
    """A request has no place for them."""
    item = MessageItem(role="assistant", content=(TextPart(text="a", annotations=RAW(b"[{}]")),))
    assert _messages(item) == ([{"role": "assistant", "content": "a"}], ["annotations_dropped"])


def test_unknown_fields_of_a_request_reach_the_upstream_as_they_were() -> None:
    """Of messages, parts, calls and results: nothing that a client wrote is lost on the way through."""
    call = {**_wire_call(A), "mood": 1}
    marked = {"cache_control": {"type": "ephemeral"}, "type": "text"}
    messages = [
        {"role": "system", "content": [{**marked, "text": "s"}], "weight": 1},
        {"role": "user", "content": [{**marked, "text": "hi"}, {"type": "input_audio", "input_audio": {"data": "x"}}]},
        {"role": "assistant", "content": None, "audio": {"id": "a"}, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [{**marked, "text": "r"}], "vendor": {}, "x": 2},
        {"role": "critic", "content": {"odd": 1}},
    ]
    request = read_request(write_json({"model": "m", "messages": messages}))
    written = write_request(Plan(items=request.items, model="m"))
    del messages[3]["vendor"]
    assert read_json(written.body)["messages"] == messages
    assert written.notes == ()


def test_fields_of_another_protocol_are_dropped_and_noted() -> None:
    """Once for each field, however many items have it."""
    extra = Extra(protocol="messages", fields={"cache_control": RAW(b"{}")})
    parts = (TextPart(text="a", extra=extra), TextPart(text="b", extra=extra))
    tool = ToolSpec(name="f", extra=extra)
    written = write_request(Plan(items=(MessageItem(role="user", content=parts),), model="m", tools=(tool,)))
    note = Note(
        code="field_dropped",
        action="dropped",
        message="cache_control: only messages knows it",
        field="cache_control",
        count=3,
    )
    assert written.notes == (note,)


def test_reasoning_without_text_is_dropped_and_noted() -> None:
    """Summaries are not the model's own words."""
    assert _messages(ReasoningItem(summary=("s",)), text_message("assistant", "a")) == (
        [{"role": "assistant", "content": "a"}],
        ["reasoning_dropped"],
    )


_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_ROLES: st.SearchStrategy[Role] = st.sampled_from(["system", "developer", "user"])


@st.composite
def _histories(draw: st.DrawFn) -> tuple[AnyItem, ...]:
    """Return a history as a well-behaved client keeps it."""
    items: list[AnyItem] = [text_message("user", draw(_TEXT))]
    for turn in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            items.append(text_message(draw(_ROLES), draw(_TEXT)))
        if draw(st.booleans()):
            items.append(ReasoningItem(text=(draw(_TEXT),)))
        calls = [
            CallItem(call_id=f"call_{turn}_{place}", name=draw(st.sampled_from(["f", "g"])), arguments='{"a":1}')
            for place in range(draw(st.integers(0, 3)))
        ]
        if not calls or draw(st.booleans()):
            items.append(text_message("assistant", draw(_TEXT)))
        items += calls
        items += [text_result(call, draw(_TEXT)) for call in calls]
    return tuple(items)


@given(_histories())
def test_what_is_written_is_read_back(items: tuple[AnyItem, ...]) -> None:
    """Items survive the way to an upstream and back, in order."""
    written = write_request(Plan(items=items, model="m"))
    assert read_request(written.body).items == items
    assert written.notes == ()


@given(st.permutations([A, B, text_result(A, "ra"), text_result(B, "rb"), USER, text_message("assistant", "s")]))
def test_every_order_gives_a_valid_conversation(items: list[AnyItem]) -> None:
    """Each call is answered exactly once, directly behind its message and in call order."""
    messages, _ = _messages(*items)
    waiting: list[str] = []
    answered: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            answered.append(message["tool_call_id"])
        else:
            assert waiting == []
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert waiting == []
    assert sorted(answered) == ["a", "b"]


def test_a_turn_of_text_beside_other_parts_keeps_all_of_them() -> None:
    """One message of plain text does not make strings of the others in its turn."""
    sound = {"type": "sound", "id": "s1"}
    spoken = MessageItem(
        role="assistant", content=(TextPart(text="Listen:"), OpaquePart(protocol="chat", raw=RAW(write_json(sound))))
    )
    messages, _ = _messages(USER, text_message("assistant", "First."), A, spoken, text_result(A, "done"))
    assert messages[1]["content"] == [{"type": "text", "text": "First."}, {"type": "text", "text": "Listen:"}, sound]
