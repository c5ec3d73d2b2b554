"""Finds tool calls that a model wrote as text, repairs their JSON, and turns them into calls."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from treadle.core.json import write_json
from treadle.core.tool_definitions import EMPTY_SCHEMA, ToolSpec
from treadle.protocols.text_calls.dialect_table import DIALECTS
from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner
from treadle.protocols.text_calls.schema_values import TextTools

__all__ = ["parse", "read_tools"]


def parse(text: str, tools: Sequence[dict[str, Any]], chunks: Sequence[str] | None = None) -> dict[str, Any]:
    """Scan a whole text in every dialect; `tools` are functions as the Chat API spells them.

    Returns the visible text as `content`, the `calls`, and as `stream` which chunk made which text leave.
    """
    pieces = [text] if chunks is None else chunks
    if not tools:
        return {"content": "".join(pieces), "calls": [], "stream": [[i, piece] for i, piece in enumerate(pieces)]}
    scanner = TextScanner(read_tools(tools), DIALECTS)
    stream: list[list[Any]] = []
    calls: list[dict[str, Any]] = []
    for number in range(len(pieces) + 1):
        for piece in scanner.feed(pieces[number]) if number < len(pieces) else scanner.finish():
            if isinstance(piece, FoundCalls):
                calls += [{"name": call.name, "arguments": call.arguments} for call in piece.calls]
            else:
                stream.append([number, piece])
    return {"content": "".join(cast("str", each[1]) for each in stream), "calls": calls, "stream": stream}


def read_tools(tools: Sequence[dict[str, Any]]) -> TextTools:
    """Return functions as the Chat API spells them, as registered tools."""
    return TextTools([_spec(tool) for tool in tools])


def _spec(tool: dict[str, Any]) -> ToolSpec:
    function = cast("dict[str, Any]", tool.get("function", tool))
    parameters = function.get("parameters")
    schema = EMPTY_SCHEMA if parameters is None else msgspec.Raw(write_json(parameters))
    return ToolSpec(name=function["name"], parameters=schema)
