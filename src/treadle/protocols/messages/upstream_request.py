"""Writes a plan as the body of a Messages request. It always streams: a whole answer is a stream folded."""

from typing import Any

import msgspec

from treadle.core.items import MessageItem, TextPart, text_of
from treadle.core.json import write_json
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.protocols.codec_interfaces import WrittenRequest
from treadle.protocols.field_reader import INTEGER, LIST, OBJECT, is_null
from treadle.protocols.messages.client_request import system_text
from treadle.protocols.messages.content_blocks import write_part
from treadle.protocols.messages.provider_state import PROTOCOL
from treadle.protocols.messages.tools import write_tools
from treadle.protocols.messages.upstream_messages import Block, Dialogue
from treadle.protocols.translation_notes import Notes, note_unread
from treadle.protocols.turn_grouping import is_continued

OUTPUT_TOKENS_DEFAULT = 8_192
"""What an answer may have where the client sets no bound: the API demands one, and every current model allows this."""

_EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_COMPOSED = frozenset({"system", "tools", "tool_choice", "output_config"})
"""Extra fields that are merged with those that Treadle writes itself."""


def write_request(plan: Plan, *, provider: str = "") -> WrittenRequest:
    """Write the request; blobs go back only to the `provider` that made them."""
    notes, options = Notes(), plan.options
    extra = _extra_fields(options, notes) if options.extra else {}
    dialogue = Dialogue(plan.items, notes, provider, plan.model)
    body: dict[str, Any] = {"model": plan.model, "max_tokens": _tokens_max(options, extra, notes)}
    body["messages"] = dialogue.messages()
    if dialogue.system and (system := _system(dialogue.system, extra.get("system"), notes)):
        body["system"] = system
    if plan.tools or "tools" in extra:
        body |= write_tools(plan, LIST.decode(extra["tools"]) if "tools" in extra else [], notes)
    if "tool_choice" in extra and plan.tool_choice.mode == "auto" and not is_continued(plan.items):
        body["tool_choice"] = extra["tool_choice"]
    _add_options(body, options, extra, notes)
    body["stream"] = True
    for name, raw in extra.items():
        if name not in _COMPOSED:
            body.setdefault(name, raw)
    return WrittenRequest(body=write_json(body), notes=notes.all(), headers=_headers(options))


def _headers(options: Options) -> tuple[tuple[str, str], ...]:
    """Return the headers that the client sent for the provider."""
    version = (("anthropic-version", options.api_version),) if options.api_version else ()
    return (*version, ("anthropic-beta", ",".join(options.betas))) if options.betas else version


def _extra_fields(options: Options, notes: Notes) -> dict[str, msgspec.Raw]:
    """Return the fields that the client wrote for this very protocol."""
    if options.extra_protocol == PROTOCOL:
        return options.extra
    note_unread(options, (), notes)
    return {}


def _tokens_max(options: Options, extra: dict[str, msgspec.Raw], notes: Notes) -> int:
    """Return how long the answer may be: the thoughts count too, so that they need less than that."""
    budget = (_budget(extra["thinking"]) or 0) if "thinking" in extra else 0
    if options.max_output_tokens is None:
        bound = OUTPUT_TOKENS_DEFAULT + budget
        notes.add("max_tokens_default", "coerced", f"the API demands a bound; {bound} tokens were set", "max_tokens")
        return bound
    if 0 < options.max_output_tokens <= budget:
        notes.add("budget_over_bound", "kept", "the budget of thinking leaves no room for an answer", "thinking")
    return options.max_output_tokens


def _system(items: list[MessageItem], raw: msgspec.Raw | None, notes: Notes) -> str | list[Block]:
    """Write the system prompt; the client's own blocks stand for the text that was read from them."""
    blocks: list[Block] = []
    for position, item in enumerate(items):
        if position == 0 and raw is not None and system_text(raw) == text_of(item.content):
            blocks += LIST.decode(raw)
            continue
        if not all(isinstance(part, TextPart) for part in item.content):
            notes.add("part_dropped", "dropped", "a part of a system prompt that is not text")
        written = (write_part(part, notes) for part in item.content if isinstance(part, TextPart))
        blocks += [block for block in written if block is not None]
    first = blocks[0] if blocks else None
    if len(blocks) == 1 and isinstance(first, dict) and set(first) == {"type", "text"}:
        return first["text"]
    return blocks


def _add_options(body: dict[str, Any], options: Options, extra: dict[str, msgspec.Raw], notes: Notes) -> None:
    if options.seed is not None:
        notes.add("seed_dropped", "dropped", "the API has no seed", "seed")
    stop = [sequence for sequence in options.stop if sequence.strip()] if options.stop else []
    if len(stop) < len(options.stop):
        notes.add("stop_dropped", "dropped", "the API refuses stop sequences of white space", "stop")
    if options.temperature is not None:
        body["temperature"] = _temperature(options.temperature, notes)
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if stop:
        body["stop_sequences"] = stop
    if options.reasoning_effort is not None or options.output_schema is not None or "output_config" in extra:
        body |= _thinking(options, extra, notes)


def _temperature(value: float, notes: Notes) -> float:
    if value <= 1:
        return value
    notes.add("temperature_capped", "coerced", f"a temperature of {value} is over the API's 1", "temperature")
    return 1


def _thinking(options: Options, extra: dict[str, msgspec.Raw], notes: Notes) -> dict[str, Any]:
    """Write how hard the model shall think, and the form of its answer."""
    config: dict[str, Any] = dict(OBJECT.decode(extra["output_config"])) if "output_config" in extra else {}
    fields: dict[str, Any] = {}
    is_restated = "thinking" in extra and _budget(extra["thinking"]) is not None and "effort" not in config
    config.pop("effort", None)
    effort = options.reasoning_effort
    if effort == "none":
        notes.add("effort_coerced", "coerced", "an effort of none became disabled thinking", "reasoning_effort")
        fields["thinking"] = extra.get("thinking", {"type": "disabled"})
    elif effort is not None and not is_restated:
        config["effort"] = _EFFORTS.get(effort, effort)
        if config["effort"] != effort:
            notes.add(
                "effort_coerced", "coerced", f"an effort of {effort!r} became {config['effort']!r}", "reasoning_effort"
            )
    form = None if options.output_schema is None else _format(options.output_schema, notes)
    if form is not None:
        config["format"] = form
    return {**fields, "output_config": config} if config else fields


def _budget(thinking: msgspec.Raw) -> int | None:
    budget = OBJECT.decode(thinking).get("budget_tokens")
    return None if budget is None or is_null(budget) else INTEGER.decode(budget)


def _format(schema: msgspec.Raw, notes: Notes) -> dict[str, Any] | None:
    """Return the API's form of an output schema: it has no name, and is always strict."""
    fields = OBJECT.decode(schema)
    if "schema" not in fields:
        notes.add("json_object_dropped", "dropped", "the API gives JSON only by a schema", "output_schema")
        return None
    rest = {name: raw for name, raw in fields.items() if name not in ("type", "name", "strict", "description")}
    return {"type": "json_schema", **rest}
