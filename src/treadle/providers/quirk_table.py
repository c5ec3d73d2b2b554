"""Quirks: how single providers deviate from their protocol, as data.

A quirk changes the request (traits of the upstream, fields of the body), or is only detected in the reply, where the
decoders repair it for every upstream: then `codes` are the notes that show and count it. Presets combine the quirks of
a provider and are found by its host. Each row names where the deviation was seen; none is a guess.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from treadle.core.errors import ConfigError
from treadle.protocols.protocol_registry import CHAT, MESSAGES, PROTOCOLS, RESPONSES
from treadle.protocols.translation.upstream_features import ALL_CHOICES, FeatureRule, Traits
from treadle.providers.quirk_edits import NO_EDITS, BodyEdits, known_edits


class Quirk(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation: its symptom, where it was reported, and what Treadle does about it."""

    symptom: str
    source: str
    traits: Mapping[str, object] = {}
    drops: tuple[str, ...] = ()
    omits: tuple[str, ...] = ()
    renames: Mapping[str, str] = {}
    messages: tuple[str, ...] = ()
    key_header: str | None = None
    codes: tuple[str, ...] = ()

    @property
    def is_detector(self) -> bool:
        """Return whether the quirk only shows in replies and changes no request."""
        return bool(self.codes)


_NINE = FeatureRule(chars="a-zA-Z0-9", filler="", chars_max=9, exact=True)
_FORTY = FeatureRule(chars="!-~", chars_max=40)

QUIRKS: dict[str, Quirk] = {
    # What a request may hold.
    "custom_tools": Quirk(
        symptom="takes custom tools on Chat Completions",
        source="OpenAI API reference: ChatCompletionCustomTool",
        traits={"has_custom_tools": True},
    ),
    "no_custom_tools": Quirk(
        symptom="cannot replay custom tool calls",
        source="docs.ollama.com/api/openai-compatibility",
        traits={"has_custom_tools": False},
    ),
    "no_namespaces": Quirk(
        symptom="refuses tools of type namespace",
        source="sgl-project/sglang#35216",
        traits={"has_namespaces": False},
    ),
    "developer_role": Quirk(
        symptom="knows the developer role",
        source="OpenAI API reference: ChatCompletionDeveloperMessageParam",
        traits={"has_developer": True},
    ),
    "no_parallel_flag": Quirk(
        symptom="400 Parallel tool calls are not supported; 400 Unknown name parallel_tool_calls",
        source="jackmpcollins/magentic#382, TheAgenticAI/TheAgenticBrowser#4",
        traits={"has_parallel_flag": False},
    ),
    "named_choice": Quirk(
        symptom="obeys a tool_choice that names a tool",
        source="OpenAI API reference: ChatCompletionNamedToolChoice; Anthropic API reference: ToolChoiceTool",
        traits={"choices": ALL_CHOICES},
    ),
    "no_required_choice": Quirk(
        symptom="refuses or ignores tool_choice required and named tools",
        source="ollama/ollama docs/openai.md: tool_choice is not among the supported fields",
        traits={"choices": frozenset({"auto", "none"})},
    ),
    "no_strict": Quirk(
        symptom="ignores or refuses strict",
        source="docs.anthropic.com/en/api/openai-sdk; llamastack/llama-stack#4795",
        traits={"has_strict": False},
    ),
    "openapi_schema": Quirk(
        symptom="400 Unknown name const / $schema / additionalProperties at function_declarations.parameters",
        source="zed-industries/zed#44875, openswarm-ai/openswarm#24",
        traits={"schemas": "openapi"},
    ),
    "text_results": Quirk(
        symptom="refuses images and files in the results of tools",
        source="OpenAI API reference: ChatCompletionToolMessageParam takes text only",
        traits={"has_result_files": False},
    ),
    "ids_of_40": Quirk(
        symptom="400 tool_calls[0].id: string too long, expected maximum length 40",
        source="BerriAI/litellm#11392, microsoft/autogen#6377",
        traits={"call_ids": _FORTY},
    ),
    "ids_of_9": Quirk(
        symptom="400 Tool call id must be a-z, A-Z, 0-9, with a length of 9",
        source="anomalyco/opencode#1680, nearai/ironclaw#1241",
        traits={"call_ids": _NINE},
    ),
    "stray_names": Quirk(
        symptom="calls functions.NAME, default_api.NAME or the name in another case",
        source="own evaluations: dotted, prefixed and cased names",
        traits={"mends_names": True},
    ),
    "old_max_tokens": Quirk(
        symptom="422 on max_completion_tokens, or ignores it",
        source="yazinsai/OpenOats#319",
        renames={"max_completion_tokens": "max_tokens"},
    ),
    "new_max_tokens": Quirk(
        symptom="400 Unsupported parameter max_tokens, use max_completion_tokens",
        source="sipeed/picoclaw#16",
        renames={"max_tokens": "max_completion_tokens"},
    ),
    "no_stream_options": Quirk(
        symptom="422 extra_forbidden stream_options.include_usage; usage comes unasked",
        source="dnakov/anon-kode#53",
        omits=("stream_options",),
    ),
    "no_seed": Quirk(
        symptom="400 Unknown name seed",
        source="Vali-98/ChatterUI#227",
        drops=("seed",),
    ),
    "no_penalties": Quirk(
        symptom="400 Unknown name frequency_penalty",
        source="Vali-98/ChatterUI#227, MinLL/SkyrimNet-GamePlugin#77",
        drops=("frequency_penalty", "presence_penalty"),
    ),
    "no_logprobs": Quirk(
        symptom="400 on logprobs, top_logprobs and logit_bias",
        source="console.groq.com/docs/openai",
        drops=("logprobs", "top_logprobs", "logit_bias"),
    ),
    "no_reasoning_effort": Quirk(
        symptom="400 Model does not support parameter reasoningEffort",
        source="acedergren/opencode-oci-provider v0.2.3, vercel/ai @ai-sdk/xai 4.0.8",
        drops=("reasoning_effort",),
    ),
    "ignored_fields": Quirk(
        symptom="takes response_format, seed, logprobs and others without effect",
        source="docs.anthropic.com/en/api/openai-sdk",
        drops=(
            "response_format",
            "seed",
            "logprobs",
            "top_logprobs",
            "logit_bias",
            "frequency_penalty",
            "presence_penalty",
            "reasoning_effort",
            "metadata",
            "prediction",
            "service_tier",
        ),
    ),
    "key_in_api_key": Quirk(
        symptom="takes a key in the api-key header, not as a bearer token",
        source="Azure OpenAI REST reference, authentication",
        key_header="api-key",
    ),
    # How messages must look.
    "no_null_content": Quirk(
        symptom="400 invalid message content type: <nil> for an assistant message with calls",
        source="SAIL-Research-Lab/cheetahclaws#72, Dicklesworthstone/pi_agent_rust#45",
        messages=("fill_content",),
    ),
    "named_results": Quirk(
        symptom="wants the name of the function in tool messages",
        source="docs.mistral.ai: function calling, tool messages",
        messages=("name_results",),
    ),
    "no_message_names": Quirk(
        symptom="400 on messages[].name",
        source="console.groq.com/docs/openai",
        messages=("drop_names",),
    ),
    "no_reasoning_echo": Quirk(
        symptom="422 extra_forbidden messages.assistant.reasoning_content",
        source="charmbracelet/crush#1590",
        messages=("drop_thoughts",),
    ),
    "reasoning_echo": Quirk(
        symptom="400 The reasoning_content in the thinking mode must be passed back, even empty",
        source="anomalyco/opencode#24722, deepseek-ai/deepseek-harness#739",
        messages=("echo_thoughts",),
    ),
    "thoughts_or_text": Quirk(
        symptom="500 Cannot pass both content and thinking in an assistant message with tool calls",
        source="ggml-org/llama.cpp#17040",
        messages=("choose_thoughts",),
    ),
    "paired_calls": Quirk(
        symptom="400 Multiple tool calls are not supported",
        source="BerriAI/litellm#31633",
        messages=("pair_calls",),
    ),
    "no_user_after_tool": Quirk(
        symptom="400 Unexpected role 'user' after role 'tool'",
        source="mistralai/mistral-vibe#454",
        messages=("bridge_results",),
    ),
    # How calls are encoded in replies; they are repaired for every upstream.
    "no_call_id": Quirk(symptom="calls without an id", source="vercel/ai#17586", codes=("call_without_id",)),
    "reused_call_id": Quirk(
        symptom="the id of an earlier call again", source="BerriAI/litellm#23510", codes=("duplicate_call_id",)
    ),
    "odd_call_id": Quirk(
        symptom="an id that is too long or of odd characters", source="BerriAI/litellm#31094", codes=("odd_call_id",)
    ),
    "no_index": Quirk(symptom="calls without an index", source="openai-python PR 3246", codes=("index_missing",)),
    "index_zero": Quirk(
        symptom="index 0 for every one of several calls",
        source="LibreChat agents PR 260, gcli2api PR 406, plexus#691",
        codes=("index_shared",),
    ),
    "sparse_index": Quirk(
        symptom="indexes of calls that skip or do not begin with 0", source="bifrost#1830", codes=("index_sparse",)
    ),
    "late_name": Quirk(symptom="arguments before the name", source="vercel/ai#14722", codes=("arguments_before_name",)),
    "resent_name": Quirk(
        symptom="the name of a call in every piece of it", source="own evaluations", codes=("name_resent",)
    ),
    "grown_name": Quirk(
        symptom="a name that grows from piece to piece", source="own evaluations", codes=("name_grown", "name_joined")
    ),
    "legacy_function_call": Quirk(
        symptom="calls as the legacy function_call", source="own evaluations", codes=("legacy_call",)
    ),
    "calls_object": Quirk(
        symptom="tool_calls is an object instead of a list", source="own evaluations", codes=("calls_not_listed",)
    ),
    "arguments_object": Quirk(
        symptom="arguments are an object instead of a string",
        source="bifrost#4644",
        codes=("arguments_not_text",),
    ),
    "repeated_arguments": Quirk(
        symptom="the whole call is sent again", source="BerriAI/litellm#20480", codes=("repeated_arguments",)
    ),
    "quoted_arguments": Quirk(
        symptom="arguments are JSON inside a JSON string",
        source="sgl-project/sglang#13518",
        codes=("quoted_arguments",),
    ),
    "unwrapped_input": Quirk(
        symptom="the input of a custom tool otherwise than as one string",
        source="router-for-me/CLIProxyAPI#4414",
        codes=("custom_input",),
    ),
    "mended_name": Quirk(
        symptom="a tool's name with a prefix or in another case, put right",
        source="own evaluations",
        codes=("name_mended",),
    ),
    # Mistakes of models; the call is passed on, and its error result tells the model.
    "stray_name": Quirk(
        symptom="a tool's name with a prefix or in another case", source="own evaluations", codes=("name_stray",)
    ),
    "invented_tool": Quirk(
        symptom="a call of a tool that was not offered", source="llamastack/llama-stack#5043", codes=("invented_tool",)
    ),
    "blank_arguments": Quirk(
        symptom="no arguments for a tool that requires some", source="own evaluations", codes=("blank_arguments",)
    ),
    "fenced_arguments": Quirk(
        symptom="arguments in a code fence", source="own evaluations", codes=("fenced_arguments",)
    ),
    "trailing_quotes": Quirk(
        symptom="stray quotes behind the arguments", source="Inspect 0.3.260", codes=("trailing_quotes",)
    ),
    "several_objects": Quirk(
        symptom="several objects in the arguments of one call",
        source="BerriAI/litellm#20742",
        codes=("several_objects",),
    ),
    "swapped_arguments": Quirk(
        symptom="the name of one tool with the arguments of another",
        source="pydantic-ai#6759",
        codes=("arguments_of_another",),
    ),
    "number_as_text": Quirk(symptom="a number as a string", source="own evaluations", codes=("number_as_text",)),
    "ignored_parallel_flag": Quirk(
        symptom="several calls though parallel_tool_calls is false",
        source="vllm-project/vllm#9451",
        codes=("parallel_ignored",),
    ),
    "dialect_text": Quirk(symptom="a call as text in the answer", source="qwen-code#10692", codes=("dialect_text",)),
    "dialect_thought": Quirk(
        symptom="a call as text in the thoughts", source="hermes-agent#35706", codes=("dialect_thought",)
    ),
    "stray_end_think": Quirk(
        symptom="a second end of thinking, in the text", source="own evaluations", codes=("stray_end_think",)
    ),
    # How replies end.
    "contradicting_stop": Quirk(
        symptom="the finish reason says stop though there are calls, or calls though there are none",
        source="BerriAI/litellm#19745, vllm-project/vllm#53255",
        codes=("stop_contradicts",),
    ),
    "empty_answer": Quirk(
        symptom="an answer without anything in it", source="earendil-works/pi#8462", codes=("empty_answer",)
    ),
    "reasoning_only": Quirk(
        symptom="thoughts and nothing else", source="NousResearch/hermes-agent#109205", codes=("reasoning_only",)
    ),
    "no_usage": Quirk(symptom="no usage, though it is asked for", source="own evaluations", codes=("usage_missing",)),
    "no_done": Quirk(symptom="a stream that ends without [DONE]", source="own evaluations", codes=("done_missing",)),
    # What is detected when the request is written or refused.
    "budget_over_bound": Quirk(
        symptom="400 max_tokens must be greater than thinking.budget_tokens",
        source="Anthropic API reference: extended thinking",
        codes=("budget_over_bound",),
    ),
    "tools_refused": Quirk(
        symptom="404 No endpoints found that support tool use",
        source="OpenRouter: tool calling",
        codes=("tools_not_supported",),
    ),
}


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """The quirks of a provider: found by host and protocol, or named in the configuration.

    `models` adds quirks for models whose name contains the key.
    """

    protocol: str = CHAT
    hosts: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()
    models: Mapping[str, tuple[str, ...]] = {}


PRESETS: dict[str, Preset] = {
    "openai": Preset(
        hosts=("api.openai.com",),
        quirks=("custom_tools", "developer_role", "named_choice", "new_max_tokens", "ids_of_40"),
    ),
    "openai_responses": Preset(protocol=RESPONSES, hosts=("api.openai.com",), quirks=("named_choice",)),
    "azure": Preset(
        hosts=("openai.azure.com", "services.ai.azure.com"),
        # No developer role: DeepSeek on Azure refuses it (CherryHQ/cherry-studio#12325).
        quirks=("named_choice", "new_max_tokens", "ids_of_40", "key_in_api_key"),
    ),
    "azure_responses": Preset(
        protocol=RESPONSES,
        hosts=("openai.azure.com", "services.ai.azure.com"),
        quirks=("named_choice", "key_in_api_key"),
    ),
    "groq": Preset(hosts=("api.groq.com",), quirks=("named_choice", "no_logprobs", "no_message_names")),
    "mistral": Preset(
        hosts=("api.mistral.ai",),
        quirks=(
            "named_choice",
            "old_max_tokens",
            "no_stream_options",
            "no_reasoning_echo",
            "ids_of_9",
            "no_user_after_tool",
        ),
    ),
    "deepseek": Preset(hosts=("api.deepseek.com",), quirks=("named_choice", "old_max_tokens", "reasoning_echo")),
    "xai": Preset(
        hosts=("api.x.ai",),
        quirks=("named_choice",),
        models={
            "grok-4-": ("no_reasoning_effort",),
            "grok-4.20": ("no_reasoning_effort",),
            "grok-code-": ("no_reasoning_effort",),
            "grok-build-": ("no_reasoning_effort",),
        },
    ),
    "databricks": Preset(
        hosts=("cloud.databricks.com", "azuredatabricks.net", "gcp.databricks.com"), quirks=("paired_calls",)
    ),
    "ollama": Preset(
        hosts=("localhost:11434", "127.0.0.1:11434", "ollama.com"), quirks=("old_max_tokens", "no_null_content")
    ),
    "ollama_responses": Preset(
        protocol=RESPONSES,
        hosts=("localhost:11434", "127.0.0.1:11434", "ollama.com"),
        quirks=("no_custom_tools", "no_namespaces"),
    ),
    "llama_cpp": Preset(models={"gpt-oss": ("thoughts_or_text",)}),
    "vllm": Preset(models={"istral": ("no_user_after_tool",)}),
    "gemini_chat": Preset(
        hosts=("generativelanguage.googleapis.com",),
        quirks=("no_seed", "no_penalties", "no_parallel_flag", "openapi_schema", "no_strict"),
    ),
    "anthropic": Preset(protocol=MESSAGES, hosts=("api.anthropic.com",), quirks=("named_choice",)),
    "anthropic_chat": Preset(hosts=("api.anthropic.com",), quirks=("ignored_fields", "no_strict")),
}


class QuirkProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The combined quirks of one endpoint and model."""

    traits: Traits
    names: tuple[str, ...] = ()
    edits: BodyEdits = NO_EDITS
    key_header: str | None = None


def check_quirks(names: Iterable[str]) -> None:
    """Refuse names that are neither quirks nor presets; a leading `-` turns one off.

    Raises: ConfigError.
    """
    for name in names:
        if name.removeprefix("-") not in QUIRKS and name.removeprefix("-") not in PRESETS:
            known = ", ".join(sorted([*PRESETS, *(name for name, quirk in QUIRKS.items() if not quirk.is_detector)]))
            raise ConfigError(f"there is no quirk {name!r}", param="quirks", hint=f"there are {known}")


def profile_of(protocol: str, host: str, model: str = "", quirks: Iterable[str] = ()) -> QuirkProfile:
    """Return the combined quirks of the host's preset and the configuration for a model."""
    return _profile(protocol, host, model, tuple(quirks))


_TRAITS: dict[Traits, Traits] = {}


@lru_cache(maxsize=256)
def _profile(protocol: str, host: str, model: str, configured: tuple[str, ...]) -> QuirkProfile:
    wanted = [name for name in PRESETS if _is_at(PRESETS[name], protocol, host)]
    wanted += [name for name in configured if not name.startswith("-")]
    named = dict.fromkeys(name for each in wanted for name in _expanded(each, model))
    for off in (name[1:] for name in configured if name.startswith("-")):
        for name in _expanded(off, model):
            named.pop(name, None)
    chosen = [QUIRKS[name] for name in named]
    changes = {field: value for quirk in chosen for field, value in quirk.traits.items()}
    traits = msgspec.structs.replace(PROTOCOLS[protocol].features, **changes)
    return QuirkProfile(
        # Equal traits are one object: caches of what is built for an upstream use its identity.
        traits=_TRAITS.setdefault(traits, traits),
        names=tuple(named),
        edits=_edits(chosen) if chosen else NO_EDITS,
        key_header=next((quirk.key_header for quirk in chosen if quirk.key_header), None),
    )


def _is_at(preset: Preset, protocol: str, host: str) -> bool:
    bare = host.rpartition(":")[0] or host
    return preset.protocol == protocol and any(
        place in (host, bare) or bare.endswith(f".{place}") for place in preset.hosts
    )


def _expanded(name: str, model: str) -> tuple[str, ...]:
    preset = PRESETS.get(name)
    if preset is None:
        return (name,)
    more = [quirk for piece, quirks in preset.models.items() if piece in model for quirk in quirks]
    return (*preset.quirks, *more)


def _edits(quirks: list[Quirk]) -> BodyEdits:
    return BodyEdits(
        drops=tuple(dict.fromkeys(name for quirk in quirks for name in quirk.drops)),
        omits=tuple(dict.fromkeys(name for quirk in quirks for name in quirk.omits)),
        renames={old: new for quirk in quirks for old, new in quirk.renames.items()},
        messages=known_edits(name for quirk in quirks for name in quirk.messages),
    )
