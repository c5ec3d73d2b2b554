"""Every documented field of a Chat or Responses request is carried to the upstream or named by a note, never neither.

The fields are those of the SDK's own types, so a new one fails here until somebody says what becomes of it.
"""

from typing import Any

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from treadle.core.items import text_message
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Note, Options
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation.adapt_plan import adapt
from treadle.protocols.translation.fidelity_report import check_fidelity
from treadle.protocols.translation_notes import unread

NOTED = "noted"
"""The upstream cannot have it."""

OURS = "ours"
"""Between the client and Treadle, which serves it itself."""

Fate = str | tuple[str, Any]
"""NOTED, OURS, or the path of the value in the upstream's body, perhaps with another spelling of it."""

SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
NESTED = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
FLAT = {"type": "json_schema", "name": "n", "schema": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
FLAT_TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}
HI = [{"role": "user", "content": "hi"}]
HI_ITEMS = [{"type": "message", "role": "user", "content": "hi"}]
LOGPROBS = ["message.output_text.logprobs", "reasoning.encrypted_content"]

# What a field is set to, what becomes of it at a Chat upstream, and at a Responses upstream.
CHAT: dict[str, tuple[Any, Fate, Fate]] = {
    "audio": ({"voice": "a", "format": "mp3"}, "audio", NOTED),
    "frequency_penalty": (0.5, "frequency_penalty", NOTED),
    "function_call": (
        {"name": "f"},
        ("tool_choice", "required"),
        ("tool_choice", "required"),
    ),
    "functions": (
        [{"name": "f", "parameters": SCHEMA}],
        ("tools", [CHAT_TOOL]),
        ("tools", [{**FLAT_TOOL, "strict": False}]),
    ),
    "logit_bias": ({"5": 1}, "logit_bias", NOTED),
    "logprobs": (True, "logprobs", ("include", LOGPROBS)),
    "max_completion_tokens": (9, "max_completion_tokens", "max_output_tokens"),
    "max_tokens": (9, "max_tokens", "max_output_tokens"),
    "messages": (HI, "messages", ("input", HI_ITEMS)),
    "metadata": ({"a": "b"}, NOTED, "metadata"),
    "modalities": (["text", "audio"], "modalities", NOTED),
    "model": ("m", "model", "model"),
    "moderation": ({"model": "o"}, "moderation", "moderation"),
    "n": (2, OURS, OURS),
    "parallel_tool_calls": (False, "parallel_tool_calls", "parallel_tool_calls"),
    "prediction": ({"type": "content", "content": "x"}, "prediction", NOTED),
    "presence_penalty": (0.5, "presence_penalty", NOTED),
    "prompt_cache_key": ("k", "prompt_cache_key", "prompt_cache_key"),
    "prompt_cache_options": ({"mode": "explicit"}, "prompt_cache_options", "prompt_cache_options"),
    "prompt_cache_retention": ("24h", "prompt_cache_retention", "prompt_cache_retention"),
    "reasoning_effort": ("low", "reasoning_effort", "reasoning.effort"),
    "response_format": (NESTED, "response_format", ("text.format", FLAT)),
    "safety_identifier": ("s", "safety_identifier", "safety_identifier"),
    "seed": (7, "seed", NOTED),
    "service_tier": ("flex", "service_tier", "service_tier"),
    "stop": (["x"], "stop", NOTED),
    "store": (True, OURS, OURS),
    "stream_options": ({"include_usage": True}, OURS, OURS),
    "temperature": (0.5, "temperature", "temperature"),
    "tool_choice": ("required", "tool_choice", "tool_choice"),
    "tools": ([CHAT_TOOL], "tools", ("tools", [{**FLAT_TOOL, "strict": False}])),
    "top_logprobs": (2, "top_logprobs", "top_logprobs"),
    "top_p": (0.5, "top_p", "top_p"),
    "user": ("u", "user", "user"),
    "verbosity": ("low", "verbosity", "text.verbosity"),
    "web_search_options": (
        {"search_context_size": "low"},
        "web_search_options",
        ("tools", [{"type": "web_search", "search_context_size": "low"}]),
    ),
}

RESPONSES: dict[str, tuple[Any, Fate, Fate]] = {
    "access_programs": ([{"id": "a"}], NOTED, "access_programs"),
    "background": (True, OURS, OURS),
    "context_management": ([{"type": "compaction", "compact_threshold": 9}], NOTED, "context_management"),
    "conversation": ("conv_1", OURS, OURS),
    "image": ({"size": "auto"}, NOTED, "image"),
    "include": (["file_search_call.results"], NOTED, ("include", ["file_search_call.results", LOGPROBS[1]])),
    "input": ("hi", ("messages", HI), ("input", HI_ITEMS)),
    "instructions": ("be brief", ("messages", [{"role": "system", "content": "be brief"}, *HI]), "instructions"),
    "max_output_tokens": (9, "max_completion_tokens", "max_output_tokens"),
    "max_tool_calls": (3, OURS, OURS),
    "metadata": ({"a": "b"}, NOTED, "metadata"),
    "model": ("m", "model", "model"),
    "moderation": ({"model": "o"}, "moderation", "moderation"),
    "parallel_tool_calls": (False, "parallel_tool_calls", "parallel_tool_calls"),
    "previous_response_id": ("resp_1", OURS, OURS),
    "prompt": ({"id": "pmpt_1"}, NOTED, "prompt"),
    "prompt_cache_key": ("k", "prompt_cache_key", "prompt_cache_key"),
    "prompt_cache_options": ({"mode": "explicit"}, "prompt_cache_options", "prompt_cache_options"),
    "prompt_cache_retention": ("24h", "prompt_cache_retention", "prompt_cache_retention"),
    "reasoning": ({"effort": "low"}, ("reasoning_effort", "low"), "reasoning"),
    "safety_identifier": ("s", "safety_identifier", "safety_identifier"),
    "service_tier": ("flex", "service_tier", "service_tier"),
    "store": (False, OURS, OURS),
    "stream_options": ({"include_obfuscation": True}, OURS, OURS),
    "temperature": (0.5, "temperature", "temperature"),
    "text": ({"format": FLAT}, ("response_format", NESTED), "text"),
    "tool_choice": ("required", "tool_choice", "tool_choice"),
    "tools": ([FLAT_TOOL], ("tools", [CHAT_TOOL]), ("tools", [{**FLAT_TOOL, "strict": False}])),
    "top_logprobs": (2, "top_logprobs", "top_logprobs"),
    "top_p": (0.5, "top_p", "top_p"),
    "truncation": ("auto", NOTED, "truncation"),
    "user": ("u", "user", "user"),
}

HOSTED = {"type": "web_search"}

# Fields of which only a part is Treadle's own, and values that only mean something together with others.
CHAT_MORE: list[tuple[dict[str, Any], str, Fate, Fate]] = [
    ({"tools": [{"type": "web_search"}]}, "tools", NOTED, ("tools", [{"type": "web_search"}])),
    ({"tools": [{"type": "browser_search"}]}, "tools", ("tools", [{"type": "browser_search"}]), NOTED),
    ({"max_tokens": 5, "max_completion_tokens": 9}, "max_tokens", NOTED, NOTED),
    (
        {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Bern"}}}},
        "web_search_options",
        "web_search_options",
        ("tools", [{"type": "web_search", "user_location": {"type": "approximate", "city": "Bern"}}]),
    ),
    ({"web_search_options": {"user_location": 3}}, "web_search_options", "web_search_options", ("tools", [HOSTED])),
    ({"web_search_options": True}, "web_search_options", "web_search_options", NOTED),
    ({"vendor_field": [1]}, "vendor_field", "vendor_field", NOTED),
]
RESPONSES_MORE: list[tuple[dict[str, Any], str, Fate, Fate]] = [
    ({"reasoning": {"summary": "auto"}}, "reasoning.summary", NOTED, "reasoning.summary"),
    ({"text": {"verbosity": "low"}}, "text.verbosity", ("verbosity", "low"), "text.verbosity"),
    ({"include": LOGPROBS[:1]}, "include", ("logprobs", True), ("include", LOGPROBS)),
    ({"include": LOGPROBS[1:]}, "include", OURS, "include"),
    ({"truncation": "disabled"}, "truncation", OURS, "truncation"),
    ({"tools": [HOSTED]}, "tools", NOTED, ("tools", [HOSTED])),
    ({"tools": [HOSTED], "max_tool_calls": 3}, "max_tool_calls", OURS, "max_tool_calls"),
    ({"tools": [HOSTED, FLAT_TOOL], "tool_choice": HOSTED}, "tool_choice", NOTED, ("tool_choice", HOSTED)),
    ({"presence_penalty": 0.5}, "presence_penalty", ("presence_penalty", 0.5), "presence_penalty"),
    ({"client_metadata": {"a": "b"}}, "client_metadata", NOTED, "client_metadata"),
]

NEEDS: dict[str, dict[str, Any]] = {
    "function_call": {"functions": [{"name": "f", "parameters": SCHEMA}]},
    "parallel_tool_calls": {"tools": [CHAT_TOOL]},
    "tool_choice": {"tools": [CHAT_TOOL]},
    "top_logprobs": {"logprobs": True},
}


def carried(client: str, upstream: str, fields: dict[str, Any]) -> tuple[dict[str, Any], list[Note]]:
    """Return the body that an upstream is sent for a client's request, and all that was noted on the way."""
    least = {"model": "m", "messages": HI} if client == "chat" else {"model": "m", "input": "hi"}
    request = PROTOCOLS[client].codec.read_request(write_json({**least, **fields}))
    system = () if request.instructions is None else (text_message("system", request.instructions),)
    plan = Plan(
        items=(*system, *request.items),
        model=request.model,
        tools=request.tools,
        tool_choice=request.tool_choice,
        options=request.options,
    )
    adapted = adapt(plan, PROTOCOLS[upstream].features)
    written = PROTOCOLS[upstream].codec.write_request(adapted.plan)
    return read_json(written.body), [*request.notes, *adapted.notes, *written.notes]


def at(body: dict[str, Any], path: str) -> Any:
    """Return the value at a path of the body."""
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def is_named(notes: list[Note], path: str) -> bool:
    """Tell whether a note says that a field does not reach the upstream."""
    lost = [note.field or "" for note in notes if note.action == "dropped" or note.code == "metadata_kept"]
    return any(field == path or field.startswith((f"{path}.", f"{path}[")) for field in lost)


def check(client: str, upstream: str, fields: dict[str, Any], name: str, fate: Fate) -> None:
    """Check that a field has this fate and no other."""
    body, notes = carried(client, upstream, fields)
    path, value = fate if isinstance(fate, tuple) else (fate, at(fields, name))
    seen = path not in (NOTED, OURS) and at(body, path) == value
    wanted = (path not in (NOTED, OURS), path == NOTED)
    assert (seen, is_named(notes, name)) == wanted, (body, notes)


def test_the_tables_know_every_documented_field() -> None:
    """What the SDK's types have, and nothing else."""
    assert set(CHAT) == set(CompletionCreateParamsBase.__annotations__)
    assert set(RESPONSES) == set(ResponseCreateParamsBase.__annotations__)


@pytest.mark.parametrize("upstream", ["chat", "responses"])
@pytest.mark.parametrize("name", CHAT)
def test_every_field_of_a_chat_request_is_carried_or_noted(name: str, upstream: str) -> None:
    """Never neither, never both."""
    value, *fates = CHAT[name]
    check("chat", upstream, {**NEEDS.get(name, {}), name: value}, name, fates[upstream == "responses"])


@pytest.mark.parametrize("upstream", ["chat", "responses"])
@pytest.mark.parametrize("name", RESPONSES)
def test_every_field_of_a_responses_request_is_carried_or_noted(name: str, upstream: str) -> None:
    """Never neither, never both."""
    value, *fates = RESPONSES[name]
    needs = {"tools": [FLAT_TOOL]} if name in ("parallel_tool_calls", "tool_choice") else {}
    check("responses", upstream, {**needs, name: value}, name, fates[upstream == "responses"])


@pytest.mark.parametrize("upstream", ["chat", "responses"])
@pytest.mark.parametrize(
    ("client", "row"), [*(("chat", row) for row in CHAT_MORE), *(("responses", row) for row in RESPONSES_MORE)]
)
def test_parts_and_combinations_are_carried_or_noted(
    client: str, row: tuple[dict[str, Any], str, Fate, Fate], upstream: str
) -> None:
    """Where a field says several things each of them counts."""
    fields, name, *fates = row
    check(client, upstream, fields, name, fates[upstream == "responses"])


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}, "system": [{"type": "text", "text": "s"}]}, []),
        ({"thinking": {"type": "adaptive", "display": "omitted"}, "top_k": 3}, ["thinking.display", "top_k"]),
        ({"system": [{"type": "text", "text": "s", "cache_control": {}}]}, ["system.cache_control"]),
    ],
)
def test_what_a_messages_client_said_in_typed_options_is_not_lost(options: dict[str, Any], lost: list[str]) -> None:
    """A budget of thinking is an effort by now, and a system prompt a message."""
    extra = {name: msgspec.Raw(write_json(value)) for name, value in options.items()}
    plan = Plan(items=(text_message("user", "hi"),), model="m", options=Options(extra=extra, extra_protocol="messages"))
    for upstream in ("chat", "responses"):
        assert [note.field for note in PROTOCOLS[upstream].codec.write_request(plan).notes] == lost


@pytest.mark.parametrize(
    ("client", "upstream", "fields"),
    [
        (
            "chat",
            "responses",
            {
                "max_tokens": 9,
                "response_format": NESTED,
                "reasoning_effort": "low",
                "verbosity": "low",
                "logprobs": True,
                "top_logprobs": 2,
                "service_tier": "flex",
                "user": "u",
                "metadata": {"a": "b"},
            },
        ),
        (
            "responses",
            "chat",
            {
                "max_output_tokens": 9,
                "text": {"format": FLAT, "verbosity": "low"},
                "reasoning": {"effort": "low"},
                "include": ["reasoning.encrypted_content"],
                "truncation": "disabled",
                "safety_identifier": "s",
                "metadata": {"a": "b"},
                "store": False,
            },
        ),
        ("chat", "chat", {"max_tokens": 9, "metadata": {"a": "b"}, "vendor_field": 1}),
        ("responses", "responses", {"tools": [HOSTED], "tool_choice": HOSTED, "client_metadata": {"a": "b"}}),
    ],
)
def test_a_strict_client_is_not_refused_for_what_is_carried(client: str, upstream: str, fields: dict[str, Any]) -> None:
    """Nothing is said to be dropped, so that `strict_fidelity` lets it pass."""
    check_fidelity(carried(client, upstream, fields)[1])


def test_values_of_odd_kinds_are_named_too() -> None:
    """What a client wrote where an object belongs is lost as a whole, and never an error."""
    extra = {"reasoning": b"7", "include": b'[1,"x",{"a":1}]', "text": b"null", "tools": b"[3,{}]"}
    options = Options(extra={name: msgspec.Raw(raw) for name, raw in extra.items()}, extra_protocol="responses")
    assert set(unread(options)) == {"reasoning", "include", "include.x", "include.a"}


@pytest.mark.parametrize("client", ["chat", "responses"])
@pytest.mark.parametrize("upstream", ["chat", "responses"])
def test_audio_is_spelled_alike(client: str, upstream: str) -> None:
    """What somebody says reaches an upstream of either API; a part that only one of them has is noted."""
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    odd = {"type": "of_tomorrow"}
    said = [{"role": "user", "content": [audio, odd]}]
    body, notes = carried(client, upstream, {"messages" if client == "chat" else "input": said})
    (message,) = body["messages" if upstream == "chat" else "input"]
    is_same = client == upstream
    assert message["content"] == ([audio, odd] if is_same else [audio])
    assert [note.code for note in notes] == ([] if is_same else ["part_dropped"])
