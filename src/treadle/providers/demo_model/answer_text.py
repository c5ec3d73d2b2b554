"""The sentences of the demo model: about results, failures and itself. Short Markdown, always the same.

Results come from untrusted tools, so every text is cut and fenced. Which tool is called is decided elsewhere.
"""

from collections.abc import Sequence
from typing import Any, cast

from treadle.core.items import CallItem, ResultItem, text_of
from treadle.core.json import BadJson, cut_text, read_json, write_json
from treadle.core.tool_definitions import ToolSpec
from treadle.providers.demo_model.tool_selection import example

ROWS_MAX = 10
INLINE_BYTES_MAX = 200
BLOCK_BYTES_MAX = 2_000

_TEMPERATURE = {
    "temperature_c": "°C",
    "temp_c": "°C",
    "temperature_f": "°F",
    "temp_f": "°F",
    "temperature": "°C",
    "temp": "°C",
}
_SKY = ("condition", "conditions", "sky", "weather", "description", "summary")
_ADJECTIVES = ("clear", "overcast", "fair", "mild", "dry")
_PLACE = ("city", "location", "place", "town")
_TEXT = ("output", "text", "result", "content")


def answer(pairs: Sequence[tuple[CallItem | None, ResultItem]]) -> str:
    """Describe the results, one paragraph each."""
    return "\n\n".join(_result(call, result) for call, result in pairs)


def introduce(tools: Sequence[ToolSpec], *, may_call: bool) -> str:
    """Introduce the model, with an example prompt for each tool."""
    lines = [
        "Hello! I am Treadle's **demo model**: scripted, offline and always the same. "
        "I do not understand language, but I call a tool when a prompt fits one, and answer from its result."
    ]
    if not tools:
        lines.append("No tool is offered to me here. Set a provider's key to talk to a real model.")
    elif not may_call:
        lines.append("I may not call a tool in this turn.")
    else:
        lines.append("Try one of these:")
        lines.append("\n".join(_offer(tool) for tool in tools[:ROWS_MAX]))
    if len(tools) > ROWS_MAX and may_call:
        lines.append(f"… and {len(tools) - ROWS_MAX} more tools.")
    return "\n\n".join(lines)


def ask_for(tool: ToolSpec, missing: Sequence[str]) -> str:
    """Ask for the arguments of a matching tool that are missing in the prompt."""
    names = " and ".join(f"`{name}`" for name in missing)
    return f"I would call **{tool.name}**, but what is {names}? Try: *{example(tool)}*"


def _offer(tool: ToolSpec) -> str:
    first = tool.description.strip().split("\n", 1)[0]
    about = f": {cut_text(first, INLINE_BYTES_MAX)}" if first else ""
    return f"- **{tool.name}**{about} *{example(tool)}*"


def _result(call: CallItem | None, result: ResultItem) -> str:
    name = result.name or (call.name if call else "") or "the tool"
    text = text_of(result.output)
    try:
        value: Any = read_json(text)
    except BadJson:
        value = text
    if result.is_error or _is_error(value):
        return f"**{name}** failed: {_error(value, text)}"
    if isinstance(value, dict):
        return _object(name, cast("dict[str, Any]", value), call)
    if isinstance(value, list):
        return _rows(name, cast("list[Any]", value))
    return f"**{name}** answered {_block(value if isinstance(value, str) else text)}"


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and bool(cast("dict[str, Any]", value).get("error"))


def _error(value: Any, text: str) -> str:
    error: Any = cast("dict[str, Any]", value).get("error") if isinstance(value, dict) else None
    if isinstance(error, dict):
        error = cast("dict[str, Any]", error).get("message")
    return cut_text(error if isinstance(error, str) and error else text or "it did not say why", INLINE_BYTES_MAX)


def _object(name: str, value: dict[str, Any], call: CallItem | None) -> str:
    if weather := _weather(value, call):
        return weather
    if not value:
        return f"**{name}** answered nothing."
    text = next((value[key] for key in _TEXT if isinstance(value.get(key), str)), None)
    if text is not None and len(value) <= 2:
        return f"**{name}** answered {_block(text)}"
    rows = [f"- **{key}**: {_inline(item)}" for key, item in list(value.items())[:ROWS_MAX]]
    return "\n".join([f"**{name}** answered:", "", *rows, *_more(len(value))])


def _weather(value: dict[str, Any], call: CallItem | None) -> str | None:
    key = next((key for key in _TEMPERATURE if isinstance(value.get(key), int | float)), None)
    if key is None:
        return None
    sky = next((value[key].lower() for key in _SKY if isinstance(value.get(key), str)), None)
    place = next((value[key] for key in _PLACE if isinstance(value.get(key), str)), None) or _asked_place(call)
    in_place = f" in {_inline(place)}" if place else ""
    is_adjective = sky is not None and " " not in sky and (sky.endswith("y") or sky in _ADJECTIVES)
    before = f" and {_inline(sky)}" if is_adjective else ""
    after = f", with {_inline(sky)}" if sky and not is_adjective else ""
    return f"It is **{value[key]:g} {_TEMPERATURE[key]}**{before}{in_place}{after}."


def _asked_place(call: CallItem | None) -> str | None:
    try:
        arguments: Any = read_json(call.arguments) if call else {}
    except BadJson:
        return None
    if not isinstance(arguments, dict):
        return None
    asked = cast("dict[str, Any]", arguments)
    return next((asked[key] for key in _PLACE if isinstance(asked.get(key), str)), None)


def _rows(name: str, values: list[Any]) -> str:
    if not values:
        return f"**{name}** found nothing."
    rows = [f"- {_inline(value)}" for value in values[:ROWS_MAX]]
    return "\n".join([f"**{name}** found {len(values)}:", "", *rows, *_more(len(values))])


def _more(count: int) -> list[str]:
    return [f"- … and {count - ROWS_MAX} more"] if count > ROWS_MAX else []


def _inline(value: Any) -> str:
    text = value if isinstance(value, str) else write_json(value).decode()
    return cut_text(" ".join(text.split()), INLINE_BYTES_MAX)


def _block(text: str) -> str:
    """Show a short text inline, a longer one in a fence with more backticks than it contains."""
    text = text.strip()
    if "\n" not in text and len(text) <= INLINE_BYTES_MAX:
        return f"**{text}**" if text else "nothing"
    fence = "```"
    while fence in text:
        fence += "`"
    shown = cut_text(text, BLOCK_BYTES_MAX)
    cut_note = "" if shown == text else "\n\n(cut here; it was longer)"
    return f"this:\n\n{fence}\n{shown}\n{fence}{cut_note}"
