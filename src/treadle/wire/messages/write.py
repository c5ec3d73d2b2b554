"""A plan as the body of a Messages request. It always streams: a whole answer is a stream folded."""

from typing import Any

import msgspec

from treadle.canon.items import MessageItem, TextPart, text_of
from treadle.canon.json import write_json
from treadle.canon.plan import Plan
from treadle.canon.request import Options
from treadle.wire.codec import Written
from treadle.wire.fields import INTEGER, LIST, OBJECT, is_null
from treadle.wire.messages.dialogue import Block, Dialogue
from treadle.wire.messages.parts import write_part
from treadle.wire.messages.request import system_text
from treadle.wire.messages.seal import PROTOCOL
from treadle.wire.messages.tools import write_tools
from treadle.wire.notes import Notes, note_unread
from treadle.wire.turns import is_continued

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
"""Kept fields that are written together with what Treadle itself has to say."""


def write_request(plan: Plan, *, provider: str = "") -> Written:
    """Write the request; blobs go back only to the `provider` that made them."""
    notes = Notes()
    kept = _kept(plan.options, notes)
    dialogue = Dialogue(plan.items, notes, provider, plan.model)
    body: dict[str, Any] = {"model": plan.model, "max_tokens": _tokens_max(plan.options, kept, notes)}
    body["messages"] = dialogue.messages()
    system = _system(dialogue.system, kept.get("system"), notes)
    if system:
        body["system"] = system
    hosted = LIST.decode(kept["tools"]) if "tools" in kept else []
    body |= write_tools(plan, hosted, notes)
    if "tool_choice" in kept and plan.tool_choice.mode == "auto" and not is_continued(plan.items):
        body["tool_choice"] = kept["tool_choice"]
    body |= _option_fields(plan.options, kept, notes)
    body["stream"] = True
    body |= {name: raw for name, raw in kept.items() if name not in body and name not in _COMPOSED}
    return Written(body=write_json(body), notes=notes.all(), headers=_headers(plan.options))


def _headers(options: Options) -> tuple[tuple[str, str], ...]:
    """Say beside the body what the client said there."""
    said = (("anthropic-version", options.api_version), ("anthropic-beta", ",".join(options.betas)))
    return tuple((name, value) for name, value in said if value)


def _kept(options: Options, notes: Notes) -> dict[str, msgspec.Raw]:
    """Return the fields that the client wrote for this very protocol."""
    if options.extra_protocol == PROTOCOL:
        return options.extra
    note_unread(options, (), notes)
    return {}


def _tokens_max(options: Options, kept: dict[str, msgspec.Raw], notes: Notes) -> int:
    """Return how long the answer may be: the thoughts count too, so that they need less than that."""
    budget = _budget(kept) or 0
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


def _option_fields(options: Options, kept: dict[str, msgspec.Raw], notes: Notes) -> dict[str, Any]:
    if options.seed is not None:
        notes.add("seed_dropped", "dropped", "the API has no seed", "seed")
    stop = [sequence for sequence in options.stop if sequence.strip()]
    if len(stop) < len(options.stop):
        notes.add("stop_dropped", "dropped", "the API refuses stop sequences of white space", "stop")
    known: dict[str, Any] = {
        "temperature": _temperature(options.temperature, notes),
        "top_p": options.top_p,
        "stop_sequences": stop or None,
        **_thinking(options, kept, notes),
    }
    return {name: value for name, value in known.items() if value is not None}


def _temperature(value: float | None, notes: Notes) -> float | None:
    if value is None or value <= 1:
        return value
    notes.add("temperature_capped", "coerced", f"a temperature of {value} is over the API's 1", "temperature")
    return 1


def _thinking(options: Options, kept: dict[str, msgspec.Raw], notes: Notes) -> dict[str, Any]:
    """Write how hard the model shall think, and the form of its answer."""
    config: dict[str, Any] = dict(OBJECT.decode(kept["output_config"])) if "output_config" in kept else {}
    fields: dict[str, Any] = {}
    is_restated = _budget(kept) is not None and "effort" not in config
    config.pop("effort", None)
    effort = options.reasoning_effort
    if effort == "none":
        notes.add("effort_coerced", "coerced", "an effort of none became disabled thinking", "reasoning_effort")
        fields["thinking"] = kept.get("thinking", {"type": "disabled"})
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


def _budget(kept: dict[str, msgspec.Raw]) -> int | None:
    budget = OBJECT.decode(kept["thinking"]).get("budget_tokens") if "thinking" in kept else None
    return None if budget is None or is_null(budget) else INTEGER.decode(budget)


def _format(schema: msgspec.Raw, notes: Notes) -> dict[str, Any] | None:
    """Return the API's form of an output schema: it has no name, and is always strict."""
    fields = OBJECT.decode(schema)
    if "schema" not in fields:
        notes.add("json_object_dropped", "dropped", "the API gives JSON only by a schema", "output_schema")
        return None
    rest = {name: raw for name, raw in fields.items() if name not in ("type", "name", "strict", "description")}
    return {"type": "json_schema", **rest}
