"""Every documented option of a request, from a client of one protocol to an upstream of another: seen, or named.

The rows are written by hand. A row says what becomes of an option at each upstream: the place where it stands in the
body (with another value where that is spelled otherwise), or that a note names it. Chat and Responses between each
other are the business of their own tables.
"""

from typing import Any

import pytest
from anthropic.types.beta import message_create_params as anthropic_params
from google.genai import types as google_types
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params

from treadle.core.errors import UnsupportedFeature
from treadle.core.ids import CountingIds
from treadle.core.items import text_message
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.protocols.gemini.field_spelling import camel
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName
from treadle.protocols.translation.fidelity_report import check_fidelity
from treadle.providers.provider_model import UpstreamCall, open_call

Expected = str | tuple[str, Any]
"""A place in the body, with its value where that differs; or one of the words below."""

LOST = "dropped"
KEPT = "kept"
COERCED = "coerced"
QUIET = "quiet"
"""Nothing is to be said: Treadle does what the option asks."""

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "schema": SCHEMA}
NAMED = {"type": "json_schema", "name": "out", "schema": SCHEMA}
FUNCTION = {"name": "f", "parameters": SCHEMA}
RESPONSE_SCHEMA = "generationConfig.responseJsonSchema"
BARE: dict[str, dict[str, Any]] = {
    "chat": {"model": "gemini-3-pro", "messages": [{"role": "user", "content": "go"}]},
    "responses": {"model": "gemini-3-pro", "input": "go"},
    "messages": {"model": "gemini-3-pro", "max_tokens": 77, "messages": [{"role": "user", "content": "go"}]},
    "gemini": {"model": "gemini-3-pro", "contents": [{"role": "user", "parts": [{"text": "go"}]}]},
}
OURS: dict[str, frozenset[str]] = {
    "chat": frozenset({"messages", "model", "n", "store", "stream_options", "functions", "function_call"}),
    "responses": frozenset(
        {
            "input",
            "model",
            "background",
            "conversation",
            "previous_response_id",
            "store",
            "stream_options",
            "max_tool_calls",
        }
    ),
    "messages": frozenset({"messages", "model", "betas", "stream", "thread"}),
    # The last are the SDK's own words for headers, and for what it does itself.
    "gemini": frozenset(
        {
            "candidateCount",
            "store",
            "systemInstruction",
            "automaticFunctionCalling",
            "httpOptions",
            "shouldReturnHttpResponse",
            "automaticContinuation",
            "generationOutputConfig",
            "toolConfig",
        }
    ),
}
"""Fields that Treadle acts on itself, and tests of their own look at."""


def _lost(*names: str, value: Any = "zz") -> dict[str, tuple[Any, dict[str, Expected]]]:
    """Return rows of options that no other protocol has."""
    return {name: (value, dict.fromkeys(PROTOCOLS, LOST)) for name in names}


CHAT: dict[str, tuple[Any, dict[str, Expected]]] = {
    "max_completion_tokens": (77, {"messages": "max_tokens", "gemini": "generationConfig.maxOutputTokens"}),
    "max_tokens": (77, {"messages": "max_tokens", "gemini": "generationConfig.maxOutputTokens"}),
    "temperature": (0.25, {"messages": "temperature", "gemini": "generationConfig.temperature"}),
    "top_p": (0.25, {"messages": "top_p", "gemini": "generationConfig.topP"}),
    "stop": (["zz"], {"messages": "stop_sequences", "gemini": "generationConfig.stopSequences"}),
    "seed": (7, {"messages": LOST, "gemini": "generationConfig.seed"}),
    "reasoning_effort": (
        "low",
        {"messages": "output_config.effort", "gemini": ("generationConfig.thinkingConfig.thinkingLevel", "LOW")},
    ),
    "response_format": (
        {"type": "json_schema", "json_schema": {"name": "out", "schema": SCHEMA}},
        {"messages": ("output_config.format", FORM), "gemini": (RESPONSE_SCHEMA, SCHEMA)},
    ),
    "tools": (
        [{"type": "function", "function": FUNCTION}],
        {"messages": ("tools", [{"name": "f", "input_schema": SCHEMA}]), "gemini": "tools"},
    ),
    "metadata": ({"a": "zz"}, {"messages": KEPT, "gemini": KEPT}),
    "user": ("zz", {"messages": "metadata.user_id", "gemini": LOST}),
    "safety_identifier": ("zz", {"messages": "metadata.user_id", "gemini": LOST}),
    "service_tier": ("default", {"messages": ("service_tier", "standard_only"), "gemini": ("serviceTier", "standard")}),
    "top_k": (7, {"messages": "top_k", "gemini": "generationConfig.topK"}),
    "frequency_penalty": (0.5, {"messages": LOST, "gemini": "generationConfig.frequencyPenalty"}),
    "presence_penalty": (0.5, {"messages": LOST, "gemini": "generationConfig.presencePenalty"}),
    **_lost("prompt_cache_key", "prompt_cache_retention", "verbosity"),
    **_lost("audio", "prompt_cache_options", "prediction", "web_search_options", "moderation", value={"a": 1}),
    **_lost("logit_bias", value={"7": 1}),
    **_lost("logprobs", value=True),
    **_lost("top_logprobs", value=3),
    **_lost("modalities", value=["text", "audio"]),
}
RESPONSES: dict[str, tuple[Any, dict[str, Expected]]] = {
    "max_output_tokens": (77, {"messages": "max_tokens", "gemini": "generationConfig.maxOutputTokens"}),
    "instructions": ("zz", {"messages": QUIET, "gemini": QUIET}),
    "temperature": (0.25, {"messages": "temperature", "gemini": "generationConfig.temperature"}),
    "top_p": (0.25, {"messages": "top_p", "gemini": "generationConfig.topP"}),
    "reasoning": (
        {"effort": "low"},
        {
            "messages": ("output_config.effort", "low"),
            "gemini": ("generationConfig.thinkingConfig.thinkingLevel", "LOW"),
        },
    ),
    "text": (
        {"format": NAMED},
        {"messages": ("output_config.format", FORM), "gemini": (RESPONSE_SCHEMA, SCHEMA)},
    ),
    "text.verbosity": ("low", {"messages": LOST, "gemini": LOST}),
    "reasoning.summary": ("auto", {"messages": COERCED, "gemini": COERCED}),
    "tools": (
        [{"type": "function", **FUNCTION}],
        {"messages": ("tools", [{"name": "f", "input_schema": SCHEMA}]), "gemini": "tools"},
    ),
    "metadata": ({"a": "zz"}, {"messages": KEPT, "gemini": KEPT}),
    "user": ("zz", {"messages": "metadata.user_id", "gemini": LOST}),
    "safety_identifier": ("zz", {"messages": "metadata.user_id", "gemini": LOST}),
    "service_tier": ("flex", {"messages": LOST, "gemini": "serviceTier"}),
    **_lost("prompt_cache_key", "prompt_cache_retention"),
    **_lost("prompt", "prompt_cache_options", "moderation", "image", value={"a": 1}),
    **_lost("access_programs", "context_management", value=[{"a": 1}]),
    **_lost("include", value=["message.output_text.logprobs"]),
    **_lost("top_logprobs", value=3),
    **_lost("truncation", value="auto"),
}
MESSAGES: dict[str, tuple[Any, dict[str, Expected]]] = {
    "max_tokens": (
        77,
        {
            "chat": "max_completion_tokens",
            "responses": "max_output_tokens",
            "messages": "max_tokens",
            "gemini": "generationConfig.maxOutputTokens",
        },
    ),
    "temperature": (0.25, dict.fromkeys(PROTOCOLS, "temperature") | {"gemini": "generationConfig.temperature"}),
    "top_p": (0.25, dict.fromkeys(PROTOCOLS, "top_p") | {"gemini": "generationConfig.topP"}),
    "top_k": (7, {"chat": LOST, "responses": LOST, "messages": "top_k", "gemini": "generationConfig.topK"}),
    "stop_sequences": (
        ["zz"],
        {"chat": "stop", "responses": LOST, "messages": "stop_sequences", "gemini": "generationConfig.stopSequences"},
    ),
    "metadata": (
        {"user_id": "zz"},
        {"chat": ("user", "zz"), "responses": ("user", "zz"), "messages": "metadata", "gemini": LOST},
    ),
    "service_tier": (
        "standard_only",
        {
            "chat": ("service_tier", "default"),
            "responses": ("service_tier", "default"),
            "messages": "service_tier",
            "gemini": ("serviceTier", "standard"),
        },
    ),
    "system": (
        [{"type": "text", "text": "zz"}],
        {"chat": QUIET, "responses": ("instructions", "zz"), "messages": "system", "gemini": QUIET},
    ),
    "thinking": (
        {"type": "enabled", "budget_tokens": 2_000},
        {
            "chat": ("reasoning_effort", "low"),
            "responses": ("reasoning.effort", "low"),
            "messages": "thinking",
            "gemini": ("generationConfig.thinkingConfig.thinkingLevel", "LOW"),
        },
    ),
    "output_config": (
        {"effort": "high", "format": FORM},
        {
            "chat": ("reasoning_effort", "high"),
            "responses": ("reasoning.effort", "high"),
            "messages": "output_config",
            "gemini": (RESPONSE_SCHEMA, SCHEMA),
        },
    ),
    "tools": (
        [{"name": "f", "input_schema": SCHEMA}],
        {
            "chat": ("tools", [{"type": "function", "function": FUNCTION}]),
            "responses": ("tools", [{"type": "function", **FUNCTION, "strict": False}]),
            "messages": "tools",
            "gemini": "tools",
        },
    ),
    **{
        name: (value, {"chat": LOST, "responses": LOST, "messages": name, "gemini": LOST})
        for name, value in {
            "cache_control": {"type": "ephemeral"},
            "compaction": {"a": 1},
            "container": "zz",
            "context_management": {"edits": []},
            "diagnostics": {"a": 1},
            "fallback_credit_token": "zz",
            "fallbacks": ["zz"],
            "inference_geo": "eu",
            "mcp_servers": [{"type": "url", "name": "s", "url": "https://example.com"}],
            "speed": "fast",
            "user_profile_id": "zz",
            "workspace_id": "zz",
        }.items()
    },
}
GEMINI: dict[str, tuple[Any, dict[str, Expected]]] = {
    "generationConfig.maxOutputTokens": (
        77,
        {
            "chat": "max_completion_tokens",
            "responses": "max_output_tokens",
            "messages": "max_tokens",
            "gemini": "generationConfig.maxOutputTokens",
        },
    ),
    "generationConfig.temperature": (0.25, dict.fromkeys(PROTOCOLS, "temperature")),
    "generationConfig.topP": (0.25, dict.fromkeys(PROTOCOLS, "top_p")),
    "generationConfig.topK": (7, {"chat": LOST, "responses": LOST, "messages": "top_k"}),
    "generationConfig.stopSequences": (["zz"], {"chat": "stop", "responses": LOST, "messages": "stop_sequences"}),
    "generationConfig.seed": (7, {"chat": "seed", "responses": LOST, "messages": LOST}),
    "generationConfig.frequencyPenalty": (
        0.5,
        {"chat": "frequency_penalty", "responses": LOST, "messages": LOST},
    ),
    "generationConfig.presencePenalty": (
        0.5,
        {"chat": "presence_penalty", "responses": LOST, "messages": LOST},
    ),
    "generationConfig.responseJsonSchema": (
        SCHEMA,
        {
            "chat": ("response_format.json_schema.schema", SCHEMA),
            "responses": ("text.format.schema", SCHEMA),
            "messages": ("output_config.format", FORM),
        },
    ),
    "generationConfig.responseSchema": (
        SCHEMA,
        {
            "chat": ("response_format.json_schema.schema", SCHEMA),
            "responses": ("text.format.schema", SCHEMA),
            "messages": ("output_config.format", FORM),
            "gemini": RESPONSE_SCHEMA,
        },
    ),
    "generationConfig.responseMimeType": (
        "application/json",
        {
            "chat": ("response_format.type", "json_object"),
            "responses": ("text.format.type", "json_object"),
            "messages": LOST,
        },
    ),
    "generationConfig.thinkingConfig": (
        {"thinkingBudget": 2_000},
        {
            "chat": ("reasoning_effort", "low"),
            "responses": ("reasoning.effort", "low"),
            "messages": ("output_config.effort", "low"),
        },
    ),
    "tools": (
        [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
        {
            "chat": ("tools", [{"type": "function", "function": FUNCTION}]),
            "responses": ("tools", [{"type": "function", **FUNCTION, "strict": False}]),
            "messages": ("tools", [{"name": "f", "input_schema": SCHEMA}]),
        },
    ),
    "serviceTier": (
        "standard",
        {
            "chat": ("service_tier", "default"),
            "responses": ("service_tier", "default"),
            "messages": ("service_tier", "standard_only"),
        },
    ),
    **{
        name: (value, {"chat": LOST, "responses": LOST, "messages": LOST})
        for name, value in {
            "cachedContent": "zz",
            "continuationToken": "zz",
            "labels": {"a": "b"},
            "modelArmorConfig": {"a": 1},
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
            "generationConfig.audioTimestamp": True,
            "generationConfig.audioTranscriptionConfig": {"a": 1},
            "generationConfig.enableAffectiveDialog": True,
            "generationConfig.enableEnhancedCivicAnswers": True,
            "generationConfig.imageConfig": {"aspectRatio": "1:1"},
            "generationConfig.logprobs": 3,
            "generationConfig.mediaResolution": "MEDIA_RESOLUTION_LOW",
            "generationConfig.modelSelectionConfig": {"a": 1},
            "generationConfig.responseFormat": {"a": 1},
            "generationConfig.responseLogprobs": True,
            "generationConfig.responseModalities": ["TEXT", "IMAGE"],
            "generationConfig.routingConfig": {"a": 1},
            "generationConfig.speechConfig": {"a": 1},
            "generationConfig.translationConfig": {"a": 1},
        }.items()
    },
}
ROWS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES, "gemini": GEMINI}
ALL = [
    pytest.param(client, upstream, field, value, wanted.get(upstream, field), id=f"{client}-{upstream}-{field}")
    for client, rows in ROWS.items()
    for field, (value, wanted) in rows.items()
    for upstream in PROTOCOLS
    if {client, upstream} & {"messages", "gemini"}
]


def _with(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a body with one more option."""
    outer, dot, inner = path.rpartition(".")
    return {**body, outer: {inner: value}} if dot else {**body, path: value}


def _sent(client: str, upstream: ProtocolName, body: dict[str, Any]) -> UpstreamCall:
    request = PROTOCOLS[client].codec.read_request(write_json(body))
    system = () if request.instructions is None else (text_message("system", request.instructions),)
    plan = Plan(
        items=(*system, *request.items),
        model=request.model,
        tools=request.tools,
        tool_choice=request.tool_choice,
        options=request.options,
    )
    return open_call(upstream, plan, CountingIds(), "")


def _at(body: Any, path: str) -> Any:
    for step in path.split("."):
        body = body.get(step) if isinstance(body, dict) else None
    return body


def _names(note_field: str | None, field: str) -> bool:
    """Tell whether a note names a field, by its path or by what Treadle calls it."""
    own = {"stop_sequences": "stop", "stopSequences": "stop", "responseMimeType": "output_schema"}
    last = field.rpartition(".")[2]
    return note_field is not None and note_field.partition(".")[0] in (field.partition(".")[0], own.get(last, last))


@pytest.mark.parametrize(("client", "upstream", "field", "value", "expected"), ALL)
def test_an_option_is_seen_or_named_never_neither_and_never_both(
    client: str, upstream: ProtocolName, field: str, value: Any, expected: Expected
) -> None:
    """What is carried makes no note of something dropped; what is not carried makes exactly one, with its field."""
    if upstream == client == "gemini" and isinstance(expected, str) and not expected.startswith("generationConfig"):
        expected = field
    call = _sent(client, upstream, _with(BARE[client], field, value))
    notes = [note for note in call.notes if _names(note.field, field)]
    dropped = [note for note in notes if note.action == "dropped"]
    body = read_json(call.body)
    if expected == LOST:
        assert len(dropped) == 1
        assert b"zz" not in call.body
        return
    assert dropped == []
    if expected in (COERCED, KEPT):
        assert [note.action for note in notes] == [expected]
    elif expected == QUIET:
        assert b"zz" in call.body
    else:
        place, wanted = (expected, None) if isinstance(expected, str) else expected
        seen = _at(body, place)
        assert seen is not None
        assert wanted is None or seen == wanted or (place == "tools" and _is_like(seen, wanted))
        assert wanted is not None or place == "tools" or seen == value


def _is_like(seen: Any, wanted: Any) -> bool:
    """Tell whether the tools have all that is wanted of them."""
    return all(each.items() <= tool.items() for tool, each in zip(seen, wanted, strict=True))


@pytest.mark.parametrize("client", PROTOCOLS)
def test_every_documented_option_has_a_row(client: str) -> None:
    """A field that an SDK knows and no row speaks of would be lost unseen."""
    documented: dict[str, set[str]] = {
        "chat": set(chat_params.CompletionCreateParamsBase.__annotations__),
        "responses": set(responses_params.ResponseCreateParamsBase.__annotations__),
        "messages": set(anthropic_params.MessageCreateParamsBase.__annotations__),
        "gemini": {
            camel(name)
            for kind in (google_types.GenerateContentConfig, google_types.GenerationConfig)
            for name in kind.model_fields
        },
    }
    elsewhere = {"tool_choice", "parallel_tool_calls"}
    rows = {path.rpartition(".")[2] if client == "gemini" else path for path in ROWS[client]}
    assert documented[client] - rows - OURS[client] - elsewhere == set()


@pytest.mark.parametrize(
    ("client", "upstream", "options"),
    [
        ("chat", "messages", {"max_tokens": 9, "user": "u", "service_tier": "auto", "temperature": 0.5, "stop": "."}),
        ("chat", "gemini", {"max_tokens": 9, "top_k": 3, "frequency_penalty": 0.1, "logprobs": False}),
        (
            "responses",
            "messages",
            {
                "max_output_tokens": 9,
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"effort": "low", "summary": "auto"},
                "text": {"format": NAMED},
                "truncation": "disabled",
                "stream_options": {"include_obfuscation": False},
            },
        ),
        ("messages", "chat", {"metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        ("messages", "responses", {"system": [{"type": "text", "text": "be kind"}], "output_config": {"format": FORM}}),
        ("messages", "gemini", {"top_k": 3, "stop_sequences": ["."], "thinking": {"type": "adaptive"}}),
        (
            "gemini",
            "messages",
            {"generationConfig": {"topK": 3, "maxOutputTokens": 9, "responseModalities": ["TEXT"]}},
        ),
        ("gemini", "chat", {"generationConfig": {"presencePenalty": 0.1, "responseMimeType": "text/plain"}}),
    ],
)
def test_a_strict_client_is_not_refused_for_what_is_carried(
    client: str, upstream: ProtocolName, options: dict[str, Any]
) -> None:
    """Values that arrive, and those that ask for what happens anyway, cost nothing."""
    check_fidelity(_sent(client, upstream, {**BARE[client], **options}).notes)


def test_a_strict_client_is_refused_by_the_name_of_the_option() -> None:
    """The error names the field as the client spelled it."""
    call = _sent("gemini", "chat", _with(BARE["gemini"], "generationConfig.topK", 3))
    with pytest.raises(UnsupportedFeature) as caught:
        check_fidelity(call.notes)
    assert caught.value.info.param == "generationConfig.topK"
