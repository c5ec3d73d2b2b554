"""Quirks as data: each from the fields a provider refused or the bytes it sent."""

import json
import re
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.core.events import ModelEvent, Noted
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, CallItem, ReasoningItem, ResultItem, TextPart, text_message
from treadle.core.json import read_json
from treadle.core.plan import Plan
from treadle.core.request import Note, Options
from treadle.core.tool_definitions import ToolChoice, ToolSpec
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation.upstream_features import Traits
from treadle.providers.error_mapping import read_failure
from treadle.providers.provider_endpoint import Endpoint, Secret
from treadle.providers.provider_model import open_call
from treadle.providers.quirk_edits import EDITS, NO_EDITS
from treadle.providers.quirk_table import PRESETS, QUIRKS, check_quirks, profile_of

USER = text_message("user", "hi")
ASKED = (
    CallItem(call_id="call_PTLP8xhu3uwZk4l3nlnrrJha", name="weather", arguments='{"city":"A"}'),
    CallItem(call_id="call_2", name="time", arguments="{}"),
)
ANSWERED = tuple(ResultItem(call_id=call.call_id, name=call.name, output=(TextPart(text=call.name),)) for call in ASKED)
TOOLS = (ToolSpec(name="weather"), ToolSpec(name="time", strict=True))


def send(
    quirks: tuple[str, ...],
    *,
    items: tuple[AnyItem, ...] = (USER,),
    options: Options | None = None,
    tools: tuple[ToolSpec, ...] = TOOLS,
    choice: str = "auto",
    protocol: Any = "chat",
) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """Return the body that an upstream with these quirks gets, and the notes."""
    plan = Plan(
        items=items,
        model="m",
        tools=tools,
        options=options or Options(),
        tool_choice=ToolChoice(mode=choice),  # type: ignore[arg-type]
    )
    call = open_call(protocol, plan, CountingIds(), "up", profile_of(protocol, "", "m", quirks))
    return read_json(call.body), call.notes


def chat_options(**fields: Any) -> Options:
    """Return options as a Chat client sends them beside those that Treadle knows."""
    extra = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    return Options(extra=extra, extra_protocol="chat")


def messages(body: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """Return the messages of a role."""
    return [message for message in body["messages"] if message["role"] == role]


def dropped(notes: tuple[Note, ...]) -> list[str | None]:
    """Return the fields that were dropped."""
    return [note.field for note in notes if note.action == "dropped"]


def test_every_row_is_whole():
    """A quirk says what is seen and where, and does one thing: change the request or be recognised."""
    for name, quirk in QUIRKS.items():
        changes = (quirk.traits, quirk.drops, quirk.omits, quirk.renames, quirk.messages, quirk.key_header)
        assert quirk.symptom, name
        assert quirk.source, name
        assert bool(any(changes)) != quirk.is_detector, name
        assert set(quirk.traits) <= set(Traits.__struct_fields__), name
        assert set(quirk.messages) <= set(EDITS), name


def test_every_preset_names_quirks_that_exist():
    """A preset is a list of rows of the table."""
    for name, preset in PRESETS.items():
        assert preset.protocol in PROTOCOLS, name
        named = {*preset.quirks, *(quirk for quirks in preset.models.values() for quirk in quirks)}
        assert named <= set(QUIRKS), name
        assert not any(QUIRKS[quirk].is_detector for quirk in named), name


@pytest.mark.parametrize(
    ("protocol", "host", "has"),
    [
        ("chat", "api.openai.com", {"custom_tools", "developer_role", "named_choice", "new_max_tokens", "ids_of_40"}),
        ("responses", "api.openai.com", {"named_choice"}),
        ("chat", "my-team.openai.azure.com", {"named_choice", "new_max_tokens", "ids_of_40", "key_in_api_key"}),
        ("responses", "my-team.openai.azure.com", {"named_choice", "key_in_api_key"}),
        ("chat", "api.groq.com", {"named_choice", "no_logprobs", "no_message_names"}),
        ("chat", "adb-1.2.azuredatabricks.net:443", {"paired_calls"}),
        ("chat", "127.0.0.1:11434", {"old_max_tokens", "no_null_content"}),
        ("chat", "127.0.0.1:8000", set()),
        ("chat", "evil-api.openai.com.example.org", set()),
        ("chat", "notapi.openai.com", set()),
        ("messages", "api.anthropic.com", {"named_choice"}),
        ("chat", "api.anthropic.com", {"ignored_fields", "no_strict"}),
        ("gemini", "generativelanguage.googleapis.com", set()),
    ],
)
def test_presets_are_found_by_host_and_protocol(protocol, host, has):
    """The whole name or a name under it; the same host may speak several protocols."""
    assert set(profile_of(protocol, host).names) == has


@pytest.mark.parametrize(
    ("model", "has"),
    [("grok-4-1-fast-reasoning", True), ("grok-code-fast-1", True), ("grok-4.20-reasoning", True), ("grok-4.3", False)],
)
def test_quirks_of_single_models(model, has):
    """xAI refuses reasoning_effort on some models and takes it on others."""
    assert ("no_reasoning_effort" in profile_of("chat", "api.x.ai", model).names) is has


def test_configured_quirks_add_and_take_away():
    """Presets can be named, too; a minus turns a row or a whole preset off."""
    deepseek = ("named_choice", "old_max_tokens", "reasoning_echo")
    assert profile_of("chat", "", "m", ["deepseek", "no_seed"]).names == (*deepseek, "no_seed")
    assert profile_of("chat", "api.groq.com", "m", ["-no_logprobs"]).names == ("named_choice", "no_message_names")
    assert profile_of("chat", "api.groq.com", "m", ["-groq"]).names == ()


def test_an_unknown_quirk_is_refused_at_birth():
    """The error names the key and what there is."""
    with pytest.raises(ConfigError, match="no quirk 'old_max_token'") as caught:
        Endpoint(name="up", base_url="https://example.org/v1", quirks=("old_max_token",))
    assert caught.value.param == "quirks"
    assert "old_max_tokens" in (caught.value.hint or "")
    check_quirks(["-mistral", "no_seed"])


def test_without_quirks_the_body_is_the_codec_s_own():
    """No edit, no decoding: the bytes stay."""
    assert profile_of("chat", "").edits == NO_EDITS


@pytest.mark.parametrize(
    ("quirk", "options", "absent", "present", "noted"),
    [
        ("old_max_tokens", Options(max_output_tokens=9), "max_completion_tokens", {"max_tokens": 9}, []),
        ("no_stream_options", Options(), "stream_options", {"stream": True}, []),
        ("no_seed", Options(seed=1, top_p=0.5), "seed", {"top_p": 0.5}, ["seed"]),
        ("no_penalties", chat_options(frequency_penalty=0.5), "frequency_penalty", {}, ["frequency_penalty"]),
        ("no_logprobs", chat_options(logit_bias={"1": 2}), "logit_bias", {}, ["logit_bias"]),
        ("no_reasoning_effort", Options(reasoning_effort="low"), "reasoning_effort", {}, ["reasoning_effort"]),
        ("ignored_fields", Options(seed=1, temperature=0.1), "seed", {"temperature": 0.1}, ["seed"]),
    ],
)
def test_fields_that_are_refused_are_left_out_or_renamed(quirk, options, absent, present, noted):
    """What a client asked for and does not get is noted as dropped; what only Treadle wrote is not."""
    plain, _ = send((), options=options)
    assert absent in plain
    body, notes = send((quirk,), options=options)
    assert absent not in body
    assert {name: body.get(name) for name in present} == present
    assert dropped(notes) == noted


def test_the_old_name_of_a_bound_becomes_the_new_one():
    """400 Unsupported parameter: 'max_tokens' is not supported with this model."""
    options = msgspec.structs.replace(chat_options(max_tokens=7), max_output_tokens=7)
    assert send((), options=options)[0]["max_tokens"] == 7
    body, _ = send(("new_max_tokens",), options=options)
    assert (body.get("max_tokens"), body["max_completion_tokens"]) == (None, 7)


def test_a_schema_answer_that_would_be_ignored_is_said():
    """Anthropic's Chat takes response_format without effect: the client learns of it."""
    schema = msgspec.Raw(b'{"type":"json_object"}')
    _, notes = send(("ignored_fields",), options=Options(output_schema=schema))
    assert dropped(notes) == ["response_format"]


def test_traits_of_the_request_follow_their_quirks():
    """Flag, choice, strictness, custom tools and schema, each as the provider takes it."""
    one = Options(parallel_tool_calls=False)
    assert "parallel_tool_calls" in send((), options=one)[0]
    assert "parallel_tool_calls" not in send(("no_parallel_flag",), options=one)[0]
    assert send((), choice="required")[0]["tool_choice"] == "required"
    assert "tool_choice" not in send(("no_required_choice",), choice="required")[0]
    assert [tool["function"].get("strict") for tool in send((), tools=TOOLS)[0]["tools"]] == [None, True]
    assert [tool["function"].get("strict") for tool in send(("no_strict",))[0]["tools"]] == [None, None]
    odd = ToolSpec(
        name="f", parameters=msgspec.Raw(b'{"type":"object","properties":{"a":{"const":"x"}},"$schema":"s"}')
    )
    sent = send(("openapi_schema",), tools=(odd,))[0]["tools"][0]["function"]["parameters"]
    assert sent == {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}


def test_custom_tools_and_namespaces_follow_their_quirks():
    """Ollama's Responses has neither."""
    custom = ToolSpec(name="exec", kind="custom", namespace="code")
    plain, _ = send((), tools=(custom,), protocol="responses")
    assert plain["tools"][0]["type"] in ("namespace", "custom")
    body, notes = send(("ollama_responses",), tools=(custom,), protocol="responses")
    assert [tool["type"] for tool in body["tools"]] == ["function"]
    assert [note.code for note in notes if note.action == "emulated"] == ["custom_tool"]


@pytest.mark.parametrize(("quirks", "role"), [((), "system"), (("developer_role",), "developer")])
def test_the_developer_role_is_sent_where_it_is_known(quirks, role):
    """Everybody takes system; OpenAI also developer."""
    body, _ = send(quirks, items=(text_message("developer", "d"), USER))
    assert body["messages"][0]["role"] == role


@pytest.mark.parametrize(("quirk", "pattern"), [("ids_of_9", r"[a-zA-Z0-9]{9}"), ("ids_of_40", r".{1,40}")])
def test_ids_of_calls_have_the_shape_the_provider_wants(quirk, pattern):
    """Tool call id must be a-z, A-Z, 0-9, with a length of 9; at most 40 characters."""
    long = CallItem(call_id="portkey-6aa6db90-1b84-4155-9f32-f658c97d6b1b", name="weather", arguments="{}")
    result = ResultItem(call_id=long.call_id, output=(TextPart(text="r"),))
    body, _ = send((quirk,), items=(USER, long, result))
    (asked,) = messages(body, "assistant")
    (answered,) = messages(body, "tool")
    assert re.fullmatch(pattern, asked["tool_calls"][0]["id"])
    assert answered["tool_call_id"] == asked["tool_calls"][0]["id"]


THOUGHT = ReasoningItem(text=("hm",))
TURN = (USER, THOUGHT, *ASKED, *ANSWERED)


def test_null_content_is_filled():
    """Ollama: invalid message content type: <nil>."""
    assert messages(send((), items=TURN)[0], "assistant")[0]["content"] is None
    assert messages(send(("no_null_content",), items=TURN)[0], "assistant")[0]["content"] == ""


def test_results_are_named_and_messages_are_not():
    """Some want the function's name in a tool message, Groq refuses any name."""
    named = messages(send(("named_results",), items=TURN)[0], "tool")
    assert [message["name"] for message in named] == ["weather", "time"]
    said = msgspec.structs.replace(USER, name="Ann")
    assert messages(send((), items=(said,))[0], "user")[0]["name"] == "Ann"
    body, notes = send(("no_message_names",), items=(said,))
    assert "name" not in messages(body, "user")[0]
    assert dropped(notes) == ["messages.name"]


def test_reasoning_is_given_back_as_the_provider_wants_it():
    """Mistral forbids it, DeepSeek demands it even empty, others take it as it is."""
    assert [message.get("reasoning_content") for message in messages(send((), items=TURN)[0], "assistant")] == ["hm"]
    body, notes = send(("no_reasoning_echo",), items=TURN)
    assert "reasoning_content" not in messages(body, "assistant")[0]
    assert dropped(notes) == ["messages.reasoning"]
    bare = (USER, *ASKED, *ANSWERED, text_message("assistant", "done"))
    echoed = messages(send(("reasoning_echo",), items=bare)[0], "assistant")
    assert [message.get("reasoning_content") for message in echoed] == ["", None]


def test_thoughts_give_way_to_text_beside_calls():
    """Cannot pass both content and thinking in an assistant message with tool calls."""
    spoken = (USER, THOUGHT, text_message("assistant", "Let me see."), *ASKED, *ANSWERED)
    (message,) = messages(send(("thoughts_or_text",), items=spoken)[0], "assistant")
    assert (message["content"], message.get("reasoning_content")) == ("Let me see.", None)
    (silent,) = messages(send(("thoughts_or_text",), items=TURN)[0], "assistant")
    assert silent["reasoning_content"] == "hm"


def test_parallel_calls_become_pairs():
    """Databricks: Multiple tool calls are not supported; each result directly behind its own call."""
    spoken = (USER, text_message("assistant", "Both:"), *ASKED, *ANSWERED, text_message("user", "and?"))
    body, _ = send(("paired_calls",), items=spoken)
    shown = [
        (message["role"], message.get("tool_call_id") or [call["id"] for call in message.get("tool_calls", ())])
        for message in body["messages"]
    ]
    first, second = (call.call_id for call in ASKED)
    assert shown == [
        ("user", []),
        ("assistant", [first]),
        ("tool", first),
        ("assistant", [second]),
        ("tool", second),
        ("user", []),
    ]
    assert [message["content"] for message in messages(body, "assistant")] == ["Both:", ""]


def test_a_user_never_speaks_directly_after_a_result():
    """Mistral: Unexpected role 'user' after role 'tool'."""
    body, _ = send(("no_user_after_tool",), items=(*TURN, text_message("user", "go on")))
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]


def test_a_preset_makes_all_its_edits_together():
    """Mistral as a whole: nothing that it refuses is left."""
    options = Options(max_output_tokens=5)
    body, _ = send(("mistral",), items=(*TURN, text_message("user", "go on")), options=options)
    assert body["max_tokens"] == 5
    assert not {"max_completion_tokens", "stream_options"} & body.keys()
    assert all("reasoning_content" not in message for message in body["messages"])
    ids = [call["id"] for message in messages(body, "assistant") for call in message.get("tool_calls", ())]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", each) for each in ids)


def test_the_key_goes_where_the_provider_looks_for_it():
    """Bearer for OpenAI, api-key for Azure, x-api-key with a version for Anthropic, x-goog-api-key for Gemini."""

    def headers(protocol: str, url: str) -> dict[str, str]:
        made = Endpoint(name="up", base_url=url, protocol=protocol, key=Secret("k-123"), headers={"x-own": "1"})  # type: ignore[arg-type]
        return dict(made.request_headers)

    own = {"x-own": "1"}
    assert headers("chat", "https://api.openai.com/v1") == {"Authorization": "Bearer k-123", **own}
    assert headers("chat", "https://x.openai.azure.com/openai/v1") == {"api-key": "k-123", **own}
    assert headers("messages", "https://api.anthropic.com") == {
        "anthropic-version": "2023-06-01",
        "x-api-key": "k-123",
        **own,
    }
    assert headers("gemini", "https://generativelanguage.googleapis.com") == {"x-goog-api-key": "k-123", **own}


def chunk(delta: str, finish: str = "null") -> bytes:
    """Return one Chat chunk."""
    return f'data: {{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}\n\n'.encode()


def called(fields: str, arguments: str = '"{}"') -> str:
    """Return a delta with one call."""
    return f'{{"tool_calls":[{{"index":0,{fields}"function":{{"name":"time","arguments":{arguments}}}}}]}}'


USED = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
DONE = USED + b"data: [DONE]\n\n"
END = chunk("{}", '"tool_calls"') + DONE
STOP = chunk("{}", '"stop"') + DONE


def second(fields: str) -> bytes:
    """Return another call, complete, with these fields."""
    return chunk(f'{{"tool_calls":[{{{fields}"id":"y","function":{{"name":"time","arguments":"{{}}"}}}}]}}')


def wanted(arguments: str, name: str = "book") -> bytes:
    """Return an answer that calls a tool of two properties with these arguments."""
    text = json.dumps(arguments)
    call = f'{{"index":0,"id":"x","function":{{"name":"{name}","arguments":{text}}}}}'
    return chunk(f'{{"tool_calls":[{call}]}}') + END


SEEN: dict[str, bytes] = {
    "no_call_id": chunk(called("")) + END,
    "reused_call_id": chunk(called('"id":"call_2",')) + END,
    "odd_call_id": chunk(called('"id":"a b\\n",')) + END,
    "no_index": chunk('{"tool_calls":[{"id":"x","function":{"name":"time","arguments":"{}"}}]}') + END,
    "index_zero": chunk(called('"id":"x",')) + second('"index":0,') + END,
    "sparse_index": chunk(called('"id":"x",')).replace(b'"index":0,"id"', b'"index":3,"id"') + END,
    "late_name": chunk('{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"{\\"a\\":"}}]}')
    + chunk('{"tool_calls":[{"index":0,"function":{"name":"time","arguments":"1}"}}]}')
    + END,
    "resent_name": chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"time","arguments":"{"}}]}')
    + chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"time","arguments":"}"}}]}')
    + END,
    "calls_object": chunk('{"tool_calls":{"index":0,"id":"x","function":{"name":"time","arguments":"{}"}}}') + END,
    "arguments_object": chunk(called('"id":"x",', '{"a":1}')) + END,
    "repeated_arguments": chunk(called('"id":"x",', '"{\\"a\\":1}{\\"a\\":1}"')) + END,
    "quoted_arguments": chunk(called('"id":"x",', '"\\"{\\\\\\"a\\\\\\":1}\\""')) + END,
    "ignored_parallel_flag": chunk(called('"id":"x",')) + second('"index":1,') + END,
    "unwrapped_input": chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"exec","arguments":"print(1)"}}]}')
    + END,
    "mended_name": chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"functions.time","arguments":"{}"}}]}')
    + END,
    "stray_name": chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"functions.time","arguments":"{}"}}]}')
    + END,
    "invented_tool": chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"rm","arguments":"{}"}}]}') + END,
    "blank_arguments": wanted(""),
    "fenced_arguments": wanted('```json\n{"seats":1}\n```'),
    "trailing_quotes": wanted('{"seats":1}"'),
    "several_objects": wanted('{"seats":1}{"seats":2}'),
    "swapped_arguments": wanted('{"zone":"CET"}'),
    "number_as_text": wanted('{"seats":"2"}'),
    "dialect_text": chunk(json.dumps({"content": '<tool_call>\n{"name": "time"}'})) + STOP,
    "dialect_thought": chunk(json.dumps({"reasoning_content": "<function=time>"})) + chunk('{"content":"x"}') + STOP,
    "stray_end_think": chunk('{"reasoning_content":"hm"}') + chunk('{"content":"</think>It is."}') + STOP,
    "contradicting_stop": chunk(called('"id":"x",')) + STOP,
    "empty_answer": chunk('{"content":""}') + STOP,
    "reasoning_only": chunk('{"reasoning_content":"hm"}') + STOP,
    "no_usage": chunk('{"content":"x"}') + chunk("{}", '"stop"') + b"data: [DONE]\n\n",
    "no_done": chunk('{"content":"x"}') + chunk("{}", '"stop"') + USED,
}
WITH_OTHERS: dict[str, tuple[bytes, set[str]]] = {
    "legacy_function_call": (
        chunk('{"function_call":{"name":"time","arguments":"{}"}}') + chunk("{}", '"function_call"') + DONE,
        {"call_without_id"},
    ),
    "grown_name": (
        chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"ti","arguments":""}}]}')
        + chunk('{"tool_calls":[{"index":0,"id":"x","function":{"name":"time","arguments":"{}"}}]}')
        + END,
        set(),
    ),
}
"""Answers that cannot have one fault alone, and the codes of the others."""

ELSEWHERE = {"budget_over_bound", "tools_refused"}
"""Those that show in a request or in its refusal."""


def notes_of(events: list[ModelEvent]) -> set[str]:
    """Return the codes of the notes."""
    return {event.note.code for event in events if isinstance(event, Noted)}


BOOK = msgspec.Raw(b'{"type":"object","properties":{"seats":{"type":"integer"}},"required":["seats"]}')
ZONED = msgspec.Raw(b'{"type":"object","properties":{"zone":{"type":"string"}},"required":["zone"]}')


def codes_of(data: bytes, size: int, *, mends: bool) -> set[str]:
    """Return the codes by which an answer is counted, of those that quirks have."""
    plan = Plan(
        items=(USER, *ASKED, *ANSWERED),
        model="m",
        tools=(
            *TOOLS,
            ToolSpec(name="exec", kind="custom"),
            ToolSpec(name="book", parameters=BOOK),
            ToolSpec(name="clock", parameters=ZONED),
        ),
        options=Options(parallel_tool_calls=False),
    )
    quirks = ["stray_names"] if mends else []
    decoder = open_call("chat", plan, CountingIds(), "up", profile_of("chat", "", "m", quirks)).decoder
    events = [event for start in range(0, len(data), size) for event in decoder.feed(data[start : start + size])]
    detectors = {code for quirk in QUIRKS.values() for code in quirk.codes}
    return notes_of(events + decoder.finish()) & detectors


@pytest.mark.parametrize("name", [*SEEN, *WITH_OTHERS])
@pytest.mark.parametrize("size", [1, 4096])
def test_a_detector_recognises_the_bytes_seen(name, size):
    """Each stray answer is counted by its code, and by no other's that does not belong to it."""
    data, others = WITH_OTHERS.get(name) or (SEEN[name], set())
    own = set(QUIRKS[name].codes)
    more = {"parallel_ignored"} if name == "index_zero" else others
    assert codes_of(data, size, mends=name == "mended_name") == own | more


def test_every_detector_has_bytes():
    """A row that no answer shows is a guess."""
    detectors = {name for name, quirk in QUIRKS.items() if quirk.is_detector}
    assert detectors == {*SEEN, *WITH_OTHERS, *ELSEWHERE}


def test_a_good_answer_is_counted_by_no_detector():
    """Neither text nor calls, nor look-alikes in a code fence."""
    assert codes_of(wanted('{"seats":2}'), 4096, mends=False) == set()
    text = json.dumps({"content": "Write\n```\n<tool_call></think>\n```\nand a[0] < b."})
    assert codes_of(chunk(text) + STOP, 7, mends=False) == set()


def test_a_budget_over_the_bound_is_told():
    """Anthropic: max_tokens must be greater than thinking.budget_tokens; a bound that Treadle sets leaves room."""
    extra = {"thinking": msgspec.Raw(b'{"type":"enabled","budget_tokens":10000}')}
    over = Options(max_output_tokens=10_000, extra=extra, extra_protocol="messages")
    body, notes = send((), options=over, protocol="messages")
    assert body["max_tokens"] == 10_000
    assert [note.code for note in notes] == list(QUIRKS["budget_over_bound"].codes)
    body, _ = send((), options=Options(extra=extra, extra_protocol="messages"), protocol="messages")
    assert body["max_tokens"] > 10_000


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "No endpoints found that support tool use. To learn more, visit the docs."),
        (400, "registry/gemma:2b does not support tools"),
        (400, "Tools are not supported by this model"),
    ],
)
def test_a_model_without_tools_is_named_as_one(status, message):
    """The hint says what to do; any other 404 stays a missing model."""
    endpoint = Endpoint(name="up", base_url="https://example.org/v1")
    error = read_failure(endpoint, status, {}, json.dumps({"error": {"message": message}}).encode(), now=0.0)
    assert (error.info.code,) == QUIRKS["tools_refused"].codes
    assert "takes no tools" in (error.hint or "")
    other = read_failure(endpoint, 404, {}, b'{"error":{"message":"no such model"}}', now=0.0)
    assert other.info.code == "model_not_found"
