"""Writes a plan as the body of a streamGenerateContent request. The address names the model, so the body does not."""

import re
from typing import Any

import msgspec

from treadle.core.json import write_json
from treadle.core.memoized import Memo
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.codec_interfaces import WrittenRequest
from treadle.protocols.field_reader import LIST, OBJECT, TEXT
from treadle.protocols.gemini.client_request import JSON_TYPE, MODELS
from treadle.protocols.gemini.field_spelling import PROTOCOL
from treadle.protocols.gemini.tools import write_choice, write_tools
from treadle.protocols.gemini.upstream_contents import ContentsReader, write_contents, write_plain_history
from treadle.protocols.translation_notes import Notes, note_foreign, note_unread
from treadle.protocols.turn_grouping import OPENING

_OLD = re.compile(r"gemini-(?:[12](?:[.-]|$)|pro|exp)|gemma|learnlm")
"""Models before Gemini 3: they want no signature on calls and take no files inside a function response."""

_BUDGETED = re.compile(r"gemini-2\.5")
_BUDGETS = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
_LEAST = re.compile(r"gemini-2\.5-pro")
"""Models that always think, and with at least so many tokens."""

_LEAST_TOKENS = 128
_LEVELS = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
_OPENING = {"role": "user", "parts": [{"text": OPENING}]}
_BESIDE_FUNCTIONS = "includeServerSideToolInvocations"
"""The flag without which Gemini refuses functions and its own tools in one request."""


def write_request(plan: Plan, *, provider: str = "") -> WrittenRequest:
    """Write the request; blobs go back only to the `provider` that made them."""
    notes = Notes()
    model = plan.model.removeprefix(MODELS)
    reader = ContentsReader(provider=provider, model=plan.model, is_old=_OLD.match(model) is not None)
    plain = write_plain_history(plan.items)
    history = write_contents(plan.items, reader, notes) if plain is None else plain
    contents = history.contents
    if not history.is_of_user:
        notes.add("opening_added", "emulated", "a conversation must begin with a user's message")
        contents = [_OPENING, *contents]
    body: dict[str, Any] = {"contents": contents}
    if history.system:
        body["systemInstruction"] = {"parts": history.system}
    extra = _extra_fields(plan.options, notes) if plan.options.extra else {}
    if plan.tools or extra:
        body |= _tool_fields(plan, extra, notes)
    config = _object(extra.pop("generationConfig", None)) | _config(plan.options)
    if plan.options.reasoning_effort is not None and "thinkingConfig" not in config:
        config |= _thinking(plan.options.reasoning_effort, model, notes)
    if config:
        body["generationConfig"] = config
    if plain is None or plan.tools:
        note_foreign(plan.items if plain is None else (), plan.tools, PROTOCOL, notes)
    return WrittenRequest(body=write_json({**extra, **body}), notes=notes.all())


def _extra_fields(options: Options, notes: Notes) -> dict[str, msgspec.Raw]:
    """Return the fields that the client wrote for Gemini and Treadle does not act on."""
    if options.extra_protocol == PROTOCOL:
        return dict(options.extra)
    note_unread(options, (), notes)
    return {}


def _tool_fields(plan: Plan, extra: dict[str, msgspec.Raw], notes: Notes) -> dict[str, Any]:
    hosted = LIST.decode(extra.pop("tools", b"[]"))
    config = _object(extra.pop("toolConfig", None))
    calling = _object(config.pop("functionCallingConfig", None))
    tools: list[Any] = [*_TOOLS.of(plan.tools)]
    if hosted and tools and _BESIDE_FUNCTIONS not in config:
        notes.add("hosted_tool", "dropped", "Gemini takes no tools of its own beside functions", "tools", len(hosted))
    else:
        tools += hosted
    if plan.tools:
        calling = write_choice(plan.tool_choice, calling)
        config |= {"functionCallingConfig": calling} if calling else {}
        if plan.options.parallel_tool_calls is False:
            notes.add(
                "parallel_dropped", "dropped", "Gemini cannot be extra from parallel calls", "parallel_tool_calls"
            )
    fields = {"tools": tools, "toolConfig": config}
    return {name: value for name, value in fields.items() if value}


_TOOLS: Memo[tuple[ToolSpec, ...], tuple[msgspec.Raw, ...]] = Memo(write_tools)


def _config(options: Options) -> dict[str, Any]:
    known: dict[str, Any] = {
        "maxOutputTokens": options.max_output_tokens,
        "temperature": options.temperature,
        "topP": options.top_p,
        "stopSequences": list(options.stop) or None,
        "seed": options.seed,
    }
    if options.output_schema is not None:
        known |= _response_fields(options.output_schema)
    return {name: value for name, value in known.items() if value is not None}


def _response_fields(form: msgspec.Raw) -> dict[str, Any]:
    """Return Gemini's form of an output schema; Chat's nested spelling is understood too."""
    fields = OBJECT.decode(form)
    kind = TEXT.decode(fields.get("type", b'"text"'))
    if kind not in ("json_schema", "json_object"):
        return {}
    nested = _object(fields.get("json_schema"))
    return {"responseMimeType": JSON_TYPE, "responseJsonSchema": fields.get("schema") or nested.get("schema")}


def _thinking(effort: str, model: str, notes: Notes) -> dict[str, Any]:
    """Write the reasoning effort as the model's generation expects it."""
    is_budgeted = _BUDGETED.match(model) is not None
    if effort not in _LEVELS or (_OLD.match(model) and not is_budgeted):
        notes.add("effort_dropped", "dropped", f"{model!r} cannot be told the effort {effort!r}", "reasoning_effort")
        return {}
    notes.add("effort_as_thinking", "coerced", "the effort is told as a thinkingConfig", "reasoning_effort")
    least = _LEAST_TOKENS if _LEAST.match(model) else 0
    budget = max(least, _BUDGETS[effort])
    amount = {"thinkingBudget": budget} if is_budgeted else {"thinkingLevel": _LEVELS[effort]}
    return {"thinkingConfig": {**amount, "includeThoughts": effort != "none"}}


def _object(raw: msgspec.Raw | None) -> dict[str, Any]:
    return dict(OBJECT.decode(raw)) if raw is not None else {}
