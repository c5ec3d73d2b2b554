"""Recognises, from each server's wording, the error of a request that is too long for the model's context.

Clients compact a conversation only if they recognise this error: codex by its code, Claude Code and opencode by the
words "prompt is too long". Servers word it differently, so all of them are rewritten to one message that includes the
sizes and the server's own text.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

CONTEXT_OVERFLOW = "context_length_exceeded"
"""The code of OpenAI's API, by which its clients recognise the error."""

_TYPES = frozenset(
    {
        CONTEXT_OVERFLOW,
        "exceed_context_size_error",  # llama.cpp
        "context_window_exceeded",
        "model_context_window_exceeded",  # Z.ai
        "model_max_prompt_tokens_exceeded",  # GitHub Copilot
        "string_above_max_length",
    }
)
"""Values of `code` and `type` that identify the error without its text."""

# A limit on tokens per minute is worded alike ("Request too large for … tokens per min: Limit 30000, Requested
# 41000"), and a shorter conversation would not help against a quota.
_QUOTA = re.compile(r"per min|per day|\brpm\b|\btpm\b|rate.?limit|quota", re.IGNORECASE)

_N = r"(\d[\d,_]*)"
_ROOM = "`?max_(?:new_|completion_)?tokens`?"
_SIZES = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), order)
    for pattern, order in (
        # Each captures sizes in the order given. "used" is added up if it occurs twice: some servers count the tokens
        # reserved for the answer separately. "over" is the excess over the limit; "limit" may occur alone.
        (rf"request \({_N} tokens\) exceeds the available context size \({_N}", "used limit"),  # llama.cpp
        (rf"prompt is too long: {_N} tokens > {_N}", "used limit"),  # Anthropic
        (rf"input length and {_ROOM} exceed context limit: {_N} \+ {_N} > {_N}", "used used limit"),  # Anthropic
        (rf"passed {_N} input tokens.{{0,160}}?resulting in a maximum input length of {_N}", "used limit"),  # vLLM 2026
        (rf"context length is {_N} tokens.{{0,160}}?for a total of at least {_N}", "limit used"),  # vLLM
        (rf"context length is {_N} tokens.{{0,40}}?has {_N} input tokens plus {_N}", "limit used used"),  # vLLM ≥ 0.15
        (rf"is too large: {_N}\..{{0,40}}context length is {_N} tokens and your request has {_N}", "used limit used"),
        (rf"context length is {_N} tokens.{{0,40}}?your request has {_N} input", "limit used"),  # vLLM ≥ 0.10
        (rf"context length is {_N} tokens.{{0,80}}?\brequested (?:about )?{_N} tokens", "limit used"),  # OpenAI, vLLM
        (rf"context length is {_N} tokens.{{0,80}}?\bresulted in {_N}", "limit used"),  # OpenAI
        (rf"configured limit of {_N} tokens.{{0,40}}?\bresulted in {_N}", "limit used"),  # OpenAI, GPT-5
        (rf"context length of {_N} tokens.{{0,40}}?requested a total of {_N}", "limit used"),  # SGLang
        (rf"input \({_N} tokens\) is longer than the model'?s context length \({_N}", "used limit"),  # SGLang
        (
            rf"input length \(?{_N}(?: tokens)?\)? exceeds the maximum allowed (?:input )?length (?:of |\(){_N}",
            "used limit",
        ),
        (rf"input length \({_N}\) exceeds model'?s maximum context length \({_N}", "used limit"),
        (rf"prompt \(length {_N}\) is longer than the maximum model length of {_N}", "used limit"),  # vLLM
        (rf"total length {_N}\) is too long to fit into the model \(context length {_N}", "used limit"),  # vLLM ≤ 0.8
        (
            rf"first {_N} tokens when context the overflows.{{0,120}}?context length of only {_N}",
            "used limit",
        ),  # LM Studio
        (rf"n_keep:? \(?{_N}\)? ?>= n_ctx:? \(?{_N}", "used limit"),  # LM Studio, two spellings
        (rf"input token count \({_N}\) exceeds the maximum number of tokens allowed \({_N}", "used limit"),  # Gemini
        (
            rf"inputs` tokens \+ {_ROOM} must be <= {_N}\. Given: {_N} `inputs` tokens and {_N}",
            "limit used used",
        ),  # TGI
        (rf"inputs` must have less than {_N} tokens\. Given: {_N}", "limit used"),  # TGI
        (rf"prompt contains {_N} tokens.{{0,60}}?too large for model with {_N}", "used limit"),  # Mistral
        (rf"maximum prompt length is {_N}.{{0,40}}?contains {_N}", "limit used"),  # xAI
        (rf"requested tokens \({_N}\) exceed context window of {_N}", "used limit"),  # llama-cpp-python
        (rf"current length is {_N} while limit is {_N}", "used limit"),  # Cerebras
        (rf"prompt token count of {_N} exceeds the limit of {_N}", "used limit"),  # GitHub Copilot
        (rf"exceeded model token limit: {_N} \(requested: {_N}", "limit used"),  # Moonshot
        (rf"size limit exceeded by {_N} tokens.{{0,80}}?limit for this model is {_N}", "over limit"),  # Cohere
        (rf"prompt has {_N} tokens, but the configured context size is {_N}", "used limit"),  # DS4
        (rf"range of input length should be \[1, {_N}\]", "limit"),  # DashScope
        (rf"context length is {_N}", "limit"),
    )
)
_WORDS = re.compile(
    r"available context size|context size has been exceeded"  # llama.cpp
    r"|maximum context length|context length exceeded|context_length"
    r"|exceeds? (?:the )?(?:model'?s )?(?:maximum )?context"
    r"|longer than the (?:maximum model|model'?s context) length"  # vLLM, SGLang
    r"|model'?s context length is only|too long to fit into the model"  # vLLM, newest and oldest
    r"|exceeds the maximum allowed (?:input )?length"  # SGLang, Poolside
    r"|exceeded max context length|prompt too long"  # Ollama
    r"|greater than the context length|context the overflows|n_keep .{0,20}>= n_ctx"  # LM Studio
    r"|inputs` must have less than|`max_new_tokens` must be <="  # TGI
    r"|context window|prompt is too long|input is too long|input length and `?max_tokens"  # OpenAI, Anthropic, Bedrock
    r"|exceeds the maximum number of tokens|maximum prompt length|maximum number of tokens"  # Gemini, xAI
    r"|too large for model with|exceed context|reduce the length of the messages"  # Mistral, Groq, Cerebras
    r"|input tokens exceed the configured limit|too many tokens: size limit exceeded"  # OpenAI, Cohere
    r"|range of input length should be|the configured context size is"  # DashScope, DS4
    r"|prompt token count of|exceeded model token limit|prompt exceeds max length",
    re.IGNORECASE,
)


class ContextOverflow(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of the request and the limit, as far as the server gave them."""

    used: int | None = None
    limit: int | None = None

    def message(self, server_text: str) -> str:
        """Return the wording that clients recognise, with the known sizes, and then the server's text."""
        if self.used is not None and self.limit is not None:
            words = f"prompt is too long: {self.used} tokens > {self.limit} maximum"
        else:
            limit = "" if self.limit is None else f" of {self.limit} tokens"
            words = f"prompt is too long: it exceeds the model's context window{limit}"
        # The upstream may be Anthropic or another Treadle, whose text already starts like this.
        return server_text if server_text.startswith(words) else f"{words}. {server_text[:1].upper()}{server_text[1:]}"


def find_context_overflow(error: Mapping[str, Any], message: str) -> ContextOverflow | None:
    """Return the sizes if the error means that the request is too long for the model; else None.

    `error` is the error object, `message` its text.
    """
    is_named = error.get("code") in _TYPES or error.get("type") in _TYPES
    if not is_named and (not _WORDS.search(message) or _QUOTA.search(message)):
        return None
    used, limit = error.get("n_prompt_tokens"), error.get("n_ctx")
    if type(used) is int and type(limit) is int:
        return ContextOverflow(used=used, limit=limit)
    for pattern, order in _SIZES:
        if found := pattern.search(message):
            return _read_sizes(order, found.groups())
    return ContextOverflow()


def _read_sizes(order: str, numbers: tuple[str, ...]) -> ContextOverflow:
    sizes: dict[str, int] = {}
    for name, number in zip(order.split(), numbers, strict=True):
        sizes[name] = sizes.get(name, 0) + int(re.sub(r"\D", "", number))
    limit = sizes.get("limit")
    used = sizes.get("used")
    if limit is not None and "over" in sizes:
        used = limit + sizes["over"]
    return ContextOverflow(used=used, limit=limit)
