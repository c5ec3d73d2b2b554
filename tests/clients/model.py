"""The model that the clients talk to: it calls what it is offered, and then tells what it learnt from the results.

What it can learn is nowhere but in the results, so an answer that has it proves that the call went out, was run,
and came back.
"""

import re
from typing import Any

import msgspec

from treadle.core.items import ResultItem, text_of
from treadle.core.plan import Plan
from treadle.core.tool_definitions import ToolSpec
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall

COMMAND = "cat note.txt"
CODE = f"const done = await tools.exec_command({{cmd: '{COMMAND}'}}); text(JSON.stringify(done));"
USAGE = Usage(input_tokens=30, output_tokens=5)
TITLE = "A note"

_PROOF = re.compile(r"proof-[0-9a-f]{8}")
_DEGREES = re.compile(r"temperature_c\W+(-?\d+)")
_SHELL = {"command": COMMAND, "description": "Read the note"}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "exec_command": {"cmd": COMMAND},
    "Bash": _SHELL,
    "bash": _SHELL,
    "run_shell_command": {**_SHELL, "is_background": False},
    "book_table": {"seats": 2},
    "get_weather": {"city": "Paris"},
}


def answer(plan: Plan) -> Reply:
    """Call every offered tool that is known, then say what they gave; else give the JSON asked for, or a title."""
    if plan.options.output_schema is not None:
        return Reply(text=msgspec.json.encode(_example(_schema(plan))).decode(), usage=USAGE)
    results = [item for item in plan.items if isinstance(item, ResultItem)]
    if results:
        return Reply(text=learnt(*_facts(results)), usage=USAGE)
    if calls := tuple(call for tool in plan.tools if (call := _call(tool))):
        return Reply(text="One moment. ", calls=calls, usage=USAGE)
    return Reply(text=TITLE, usage=USAGE)


def learnt(*facts: str) -> str:
    """Return what the model says at the end."""
    return f"I learnt: {', '.join(sorted(facts))}."


def _facts(results: list[ResultItem]) -> set[str]:
    said = "\n".join(text_of(result.output) for result in results)
    return {*_PROOF.findall(said), *(f"{degrees} °C" for degrees in _DEGREES.findall(said))}


def _call(tool: ToolSpec) -> ReplyCall | None:
    """Return the call of a known tool; `exec` is codex's code mode, a custom tool where the upstream has such."""
    if tool.name == "exec":
        return (
            ReplyCall(name="exec", raw=CODE) if tool.kind == "custom" else ReplyCall(name="exec", args={"input": CODE})
        )
    return ReplyCall(name=tool.name, args=_ARGUMENTS[tool.name]) if tool.name in _ARGUMENTS else None


def _schema(plan: Plan) -> Any:
    assert plan.options.output_schema is not None
    return msgspec.json.decode(plan.options.output_schema).get("schema", {"type": "object"})


def _example(schema: Any) -> Any:
    """Return the simplest value of a schema."""
    match str(schema.get("type", "string")).lower():
        case "object":
            return {name: _example(inner) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return []
        case "integer" | "number":
            return 0
        case "boolean":
            return False
        case _:
            return schema.get("enum", ["plain"])[0]
