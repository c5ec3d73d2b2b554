"""Every dialect, as rows. A new one that only renames tags is a row here, and its fixtures.

The order matters where several begin with the same word: each is tried in turn, and fails at the first character
that is not its own.
"""

from treadle.protocols.text_calls.dialect_grammar import (
    Braces,
    Dialect,
    Elements,
    Framed,
    JsonBody,
    NamedJson,
    Pairs,
    Pythonic,
    Tagged,
    Whole,
)

_NS = "antml:"
_BAR = "｜"
_V3 = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
_K2 = "<|tool_call"
_HERMES_END = "</tool_call>"
_LINES = ",;"


def _invoke(head: str, wraps: tuple[str, ...], *, type_attr: str = "", ends: tuple[str, ...] = ()) -> Tagged:
    """Return the grammar of tags that name a tool and its parameters by an attribute, or hold an object of them."""
    foot = f"</{head[1:]}"
    return Tagged(
        head=head,
        foot=foot,
        wraps=wraps,
        call="invoke",
        name_attr="name",
        key_attr="name",
        type_attr=type_attr,
        ends=ends,
        has_json=True,
    )


def _dsml(bar: str) -> tuple[Tagged, Tagged]:
    head = f"<{bar}DSML{bar}"
    return (
        _invoke(head, ("function_calls",), type_attr="string"),
        _invoke(head, ("tool_calls",), type_attr="string"),
    )


def _qwen(wraps: tuple[str, ...], *, is_bare: bool = False, ends: tuple[str, ...] = ()) -> Tagged:
    return Tagged(wraps=wraps, is_bare=is_bare, ends=ends, trims=True)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        id="hermes_json",
        models=("hermes", "qwen2.5", "qwen3", "granite-4", "ernie", "reka", "bielik", "trinity", "mimo-vl"),
        grammar=JsonBody(
            opener=("<tool_call>",), first="{", closers=(_HERMES_END,), separators=_LINES, needs_closer=True
        ),
    ),
    Dialect(
        id="longcat",
        models=("longcat",),
        grammar=JsonBody(
            opener=("<longcat_tool_call>",),
            closers=("</longcat_tool_call>",),
            separators=_LINES,
            needs_closer=True,
        ),
    ),
    Dialect(
        id="qwen3_coder",
        models=("qwen3-coder", "qwen3.5", "qwen3.6", "nemotron-3", "step-3.5", "mimo", "exaone"),
        grammar=_qwen(("tool_call",)),
    ),
    Dialect(
        id="qwen3_coder_bare",
        models=("qwen3-coder", "qwen3.5", "qwen3.6", "nemotron-3", "step-3.5", "mimo", "exaone"),
        grammar=_qwen((), is_bare=True, ends=(_HERMES_END,)),
    ),
    Dialect(id="seed_oss", models=("seed-oss", "seed_oss"), grammar=_qwen(("seed:tool_call",))),
    Dialect(
        id="function_json",
        models=("llama-3.1", "llama3.1", "functionary"),
        grammar=NamedJson(
            opener="<function=",
            name_ends=(">",),
            closers=("</function>", _HERMES_END),
            needs_closer=True,
        ),
    ),
    Dialect(
        id="function_glued",
        models=("llama-3.1", "llama3.1", "functionary"),
        grammar=NamedJson(opener="<function=", closers=("</function>", _HERMES_END), needs_closer=True),
    ),
    Dialect(id="glm45", models=("glm-4.5", "glm-4.6"), grammar=Pairs(name_end="\n")),
    Dialect(id="glm47", models=("glm-4.7", "glm-5", "ling-3", "laguna"), grammar=Pairs()),
    Dialect(id="hy_v3", models=("hy3", "hy4", "hunyuan-3"), grammar=Pairs(name_end="sep")),
    Dialect(id="anthropic_invoke", models=("claude",), grammar=_invoke("<", ("function_calls", "tool_calls"))),
    Dialect(id="anthropic_ns", models=("claude",), grammar=_invoke(f"<{_NS}", ("function_calls",))),
    Dialect(id="minimax_m2", models=("minimax-m2",), grammar=_invoke("<", ("minimax:tool_call",))),
    Dialect(id="minimax_m3", models=("minimax-m3",), grammar=Elements(sentinel="]<]minimax[>[")),
    Dialect(id="dots", models=("dots",), grammar=_invoke("<", ("dots_function_call",))),
    Dialect(
        id="dots_json",
        models=("dots",),
        grammar=JsonBody(
            opener=("<dots_function_call>",), closers=("</dots_function_call>",), separators=_LINES, needs_closer=True
        ),
    ),
    Dialect(id="muse_atem", models=("muse",), grammar=_invoke("<atem:", ("function_calls",), ends=("<|eom|>",))),
    Dialect(id="dsml_v32", models=("deepseek-v3.2",), grammar=_dsml(_BAR)[0]),
    Dialect(id="dsml_v4", models=("deepseek-v4",), grammar=_dsml(_BAR)[1]),
    Dialect(id="dsml_v32_bars", models=("deepseek-v3.2", "deepseek-v4"), grammar=_dsml(_BAR * 2)[0]),
    Dialect(id="dsml_v4_bars", models=("deepseek-v4",), grammar=_dsml(_BAR * 2)[1]),
    Dialect(id="dsml_v32_double", models=("deepseek-v3.2", "deepseek-v4"), grammar=_dsml("‖")[0]),
    Dialect(id="dsml_v4_double", models=("deepseek-v4",), grammar=_dsml("‖")[1]),
    Dialect(
        id="deepseek_v3",
        models=("deepseek-v3", "deepseek-chat", "deepseek-r1", "deepseek-reasoner"),
        grammar=NamedJson(
            opener=_V3[1],
            wrappers=_V3[:1],
            lead=f"function{_V3[2]}",
            name_ends=("\n",),
            closers=_V3[3:],
            needs_closer=True,
            is_fenced=True,
        ),
    ),
    Dialect(
        id="deepseek_v31",
        models=("deepseek-v3.1", "deepseek-chat", "deepseek-reasoner"),
        grammar=NamedJson(opener=_V3[1], wrappers=_V3[:1], name_ends=(_V3[2],), closers=_V3[3:], needs_closer=True),
    ),
    Dialect(
        id="kimi_k2",
        models=("kimi-k2", "kimi_k2"),
        grammar=NamedJson(
            opener=f"{_K2}_begin|>",
            wrappers=(f"{_K2}s_section_begin|>", f"{_K2}_section_begin|>"),
            name_ends=(f"{_K2}_argument_begin|>",),
            closers=(f"{_K2}_end|>", f"{_K2}s_section_end|>", f"{_K2}_section_end|>"),
            needs_closer=True,
        ),
    ),
    Dialect(
        id="kimi_k3",
        models=("kimi-k3", "kimi_k3"),
        grammar=Tagged(
            head="<|open|>",
            foot="<|close|>",
            tail="<|sep|>",
            wraps=("tools",),
            call="call",
            param="argument",
            name_attr="tool",
            key_attr="key",
            type_attr="type",
            has_entities=True,
        ),
    ),
    Dialect(id="harmony", models=("gpt-oss",), grammar=Framed()),
    Dialect(
        id="mistral_list",
        models=("mistral", "mixtral", "codestral"),
        grammar=JsonBody(opener=("[TOOL_CALLS]",), closers=("</s>",)),
    ),
    Dialect(
        id="mistral_args",
        models=("mistral", "devstral", "magistral", "ministral"),
        grammar=NamedJson(
            opener="[TOOL_CALLS]",
            id_mark="[CALL_ID]",
            args_mark="[ARGS]",
            closers=("</s>",),
        ),
    ),
    Dialect(
        id="llama3_json",
        models=("llama-3", "llama3", "llama-4", "llama4"),
        grammar=JsonBody(opener=("<|python_tag|>",), closers=("<|eom_id|>", "<|eot_id|>"), separators=";"),
    ),
    Dialect(
        id="llama3_call",
        models=("llama-3", "llama3"),
        grammar=Pythonic(opener="<|python_tag|>", closer="<|eom_id|>", is_list=False),
    ),
    Dialect(
        id="llama4_pythonic",
        models=("llama-4", "llama4"),
        grammar=Pythonic(opener="<|python_start|>", closer="<|python_end|>"),
    ),
    Dialect(
        id="lfm2",
        models=("lfm2",),
        grammar=Pythonic(opener="<|tool_call_start|>", closer="<|tool_call_end|>", is_echoed=True),
    ),
    Dialect(
        id="lfm2_json",
        models=("lfm2",),
        grammar=JsonBody(
            opener=("<|tool_call_start|>",), closers=("<|tool_call_end|>",), needs_closer=True, is_echoed=True
        ),
    ),
    Dialect(
        id="olmo3",
        models=("olmo-3", "olmo3"),
        grammar=Pythonic(opener="<function_calls>", closer="</function_calls>", is_list=False),
    ),
    Dialect(
        id="granite3",
        models=("granite-3", "granite3"),
        grammar=JsonBody(opener=("<|tool_call|>",), first="["),
    ),
    Dialect(
        id="granite31",
        models=("granite-3.1", "granite3.1"),
        grammar=JsonBody(opener=("<tool_call>",), first="[", closers=(_HERMES_END,)),
    ),
    Dialect(
        id="granite20b",
        models=("granite-20b",),
        grammar=JsonBody(opener=("<function_call>",), first="{", closers=("</function_call>",)),
    ),
    Dialect(
        id="internlm",
        models=("internlm", "intern-s1"),
        grammar=JsonBody(
            opener=("<|action_start|>", "<|plugin|>"), first="{", closers=("<|action_end|>",), needs_closer=True
        ),
    ),
    Dialect(
        id="tool_calls_list",
        models=("jamba", "hunyuan-a13b", "apriel"),
        grammar=JsonBody(opener=("<tool_calls>",), first="[", closers=("</tool_calls>",), needs_closer=True),
    ),
    Dialect(
        id="minimax_m1",
        models=("minimax-m1",),
        grammar=JsonBody(
            opener=("<tool_calls>",), first="{", closers=("</tool_calls>",), separators=_LINES, needs_closer=True
        ),
    ),
    Dialect(
        id="nemotron_v2",
        models=("nemotron-nano",),
        grammar=JsonBody(opener=("<TOOLCALL>",), closers=("</TOOLCALL>",), needs_closer=True),
    ),
    Dialect(
        id="functools",
        models=("phi-4", "firefunction"),
        at_line=True,
        grammar=JsonBody(opener=("functools",), first="["),
    ),
    Dialect(
        id="apertus",
        models=("apertus",),
        grammar=JsonBody(opener=("<|tools_prefix|>",), closers=("<|tools_suffix|>",), needs_closer=True, is_keyed=True),
    ),
    Dialect(
        id="cohere_action",
        models=("command-r7b", "command-a", "command-4"),
        grammar=JsonBody(opener=("<|START_ACTION|>",), closers=("<|END_ACTION|>",), needs_closer=True),
    ),
    Dialect(
        id="command_r",
        models=("command-r",),
        at_line=True,
        grammar=JsonBody(opener=("Action:",), is_fenced=True),
    ),
    Dialect(
        id="functiongemma",
        models=("functiongemma",),
        grammar=Braces(opener="<start_function_call>", quote="<escape>", closer="<end_function_call>"),
    ),
    Dialect(
        id="gemma4",
        models=("gemma-4", "gemma4"),
        grammar=Braces(opener="<|tool_call>", quote='<|"|>', closer="<tool_call|>"),
    ),
    Dialect(
        id="step3",
        models=("step3", "step-3"),
        grammar=Tagged(
            head="<steptml:",
            foot="</steptml:",
            leads=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "function<｜tool_sep｜>"),
            ends=("<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
            call="invoke",
            name_attr="name",
            key_attr="name",
        ),
    ),
    Dialect(
        id="minicpm5",
        models=("minicpm",),
        grammar=Tagged(param="param", name_attr="name", key_attr="name", has_cdata=True),
    ),
    Dialect(
        id="gigachat",
        models=("gigachat",),
        at_line=True,
        grammar=JsonBody(opener=("function call<|role_sep|>",), maybe="<|message_sep|>", first="{"),
    ),
    Dialect(id="gigachat31", models=("gigachat",), grammar=JsonBody(opener=("<|function_call|>",), first="{")),
    Dialect(
        id="inkling",
        models=("inkling",),
        grammar=JsonBody(
            opener=("<|content_invoke_tool_json|>",),
            maybe="<|message_model|>",
            first="{",
            closers=("<|end_message|>",),
            needs_closer=True,
        ),
    ),
    Dialect(
        id="solar",
        models=("solar",),
        grammar=NamedJson(
            opener="<|tool_call:begin|>",
            id_end="<|tool_call:name|>",
            name_ends=("<|tool_call:args|>",),
            closers=("<|tool_call:end|>",),
            needs_closer=True,
        ),
    ),
    Dialect(
        id="functionary_v32",
        models=("functionary",),
        at_line=True,
        grammar=NamedJson(opener=">>>", name_ends=("\n",)),
    ),
    Dialect(
        id="gemini_tool_code",
        models=("gemini",),
        at_line=True,
        grammar=Pythonic(opener="```tool_code", closer="```", is_list=False),
    ),
    Dialect(
        id="gemini_call",
        models=("gemini",),
        at_line=True,
        grammar=Braces(opener="call:default_api:", quote='"'),
    ),
    Dialect(id="cline_xml", is_markerless=True, grammar=Elements()),
    Dialect(
        id="react",
        is_markerless=True,
        at_line=True,
        grammar=NamedJson(opener="Action:", name_ends=("\n",), args_mark="Action Input:", may_be_code=True),
    ),
    Dialect(
        id="harmony_stripped",
        is_markerless=True,
        at_line=True,
        grammar=NamedJson(opener="commentary to=", name_ends=(" ",), args_mark="json"),
    ),
    Dialect(id="fenced_json", is_markerless=True, grammar=Whole(kind="fence")),
    Dialect(id="openai_json_text", is_markerless=True, grammar=Whole(kind="json")),
    Dialect(id="bare_json", is_markerless=True, grammar=Whole(kind="json")),
    Dialect(id="pythonic", is_markerless=True, grammar=Whole(kind="python")),
)

BY_ID = {dialect.id: dialect for dialect in DIALECTS}

REASONING = {
    "<think>": "</think>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<thinking>": "</thinking>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
}
"""What opens a block of reasoning in text, and what closes it."""

RESPONSE = (
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|open|>message<|sep|>",
    "<|close|>message<|sep|>",
)
"""Tags around visible text, which leave without it."""

FRAME_ENDS = ("<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>")
"""What ends a message with a header."""

LONE_ENDS = {"<|eom|>": "muse_atem"}
"""Ends that servers leave of messages whose header they take away, by the dialect whose models write so."""
