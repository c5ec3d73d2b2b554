"""Selects the tool that matches a prompt, if any, by comparing words with its name, description and parameters.

A greeting matches no tool. `tool_choice` is respected: `none` calls nothing, `required` and named always call.
"""

from collections import Counter
from typing import Any, cast

import msgspec

from treadle.core.tool_definitions import ToolChoice, ToolSpec
from treadle.providers.demo_model.argument_guessing import (
    EXAMPLES,
    PLACE,
    Filler,
    Schema,
    evidence,
    kind_of,
    parameters_of,
    required_of,
    type_of,
)
from treadle.providers.demo_model.prompt_parsing import Prompt, read_prompt, words_of
from treadle.providers.fakes.scripted_reply import ReplyCall

NAMED_POINTS = 6
NAME_WORD_POINTS = 3
EVIDENCE_POINTS = 2
OTHER_WORD_POINTS = 1
POINTS_MIN = 3
CALLS_MAX = 8


class DemoChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The decision: calls, or a matching tool whose arguments are missing in the prompt."""

    tool: ToolSpec | None = None
    calls: tuple[ReplyCall, ...] = ()
    missing: tuple[str, ...] = ()


def choose(text: str, tools: tuple[ToolSpec, ...], choice: ToolChoice) -> DemoChoice:
    """Select a tool and return the calls that the text asks for."""
    offered = [tool for tool in tools if choice.allowed is None or tool.name in choice.allowed]
    if choice.mode == "named":
        offered = [tool for tool in offered if tool.name == choice.name]
    if choice.mode == "none" or not offered:
        return DemoChoice()
    prompt = read_prompt(text)
    tool = max(offered, key=lambda tool: points(tool, prompt))
    is_forced = choice.mode in ("required", "named")
    if not is_forced and points(tool, prompt) < POINTS_MIN:
        return DemoChoice()
    calls, missing = _calls(tool, prompt)
    return DemoChoice(tool=tool, missing=missing) if missing and not is_forced else DemoChoice(tool=tool, calls=calls)


def points(tool: ToolSpec, prompt: Prompt) -> int:
    """Score how well a tool matches: its name counts most, then parameters that occur in the prompt."""
    name = words_of(tool.name)
    others = words_of(tool.description) | words_of(" ".join(required_of(schema := parameters_of(tool), schema)))
    return (
        NAMED_POINTS * (tool.name.lower() in prompt.text.lower().split())
        + NAME_WORD_POINTS * len(name & prompt.words)
        + EVIDENCE_POINTS * evidence(tool, prompt)
        + OTHER_WORD_POINTS * len((others - name) & prompt.words)
    )


def example(tool: ToolSpec) -> str:
    """Write a prompt that makes the demo model call this tool."""
    if tool.kind == "custom":
        return f'Use {tool.name} with "hello"'
    schema = parameters_of(tool)
    required = required_of(schema, schema)
    topic = " ".join(sorted(words_of(tool.name), key=tool.name.lower().find))
    if topic and [kind_of(name) for name in required] == [PLACE]:
        return f"What is the {topic} in {EXAMPLES[PLACE]}?"
    seen: Counter[str] = Counter()
    values: list[str] = []
    for name, part in required.items():
        kind = "enum" if isinstance(part.get("enum"), list) else type_of(part)
        values.append(_example_value(seen[kind], name, part))
        seen[kind] += 1
    return f"Use {tool.name} with {' and '.join(values)}" if values else f"Use {tool.name}"


def _example_value(number: int, name: str, schema: Schema) -> str:
    """Return a value that `Filler` finds again; `number` makes values of one kind different."""
    choices: Any = schema.get("enum")
    if isinstance(choices, list) and choices:
        return str(cast("list[Any]", choices)[number % len(cast("list[Any]", choices))])
    match type_of(schema):
        case "integer" | "number":
            return str(number + 2)
        case "string" if kind_of(name) == PLACE:
            return f"in {EXAMPLES[PLACE]}"
        case "string":
            return f"`{EXAMPLES[kind_of(name)]}`"
        case _:
            return name


def _calls(tool: ToolSpec, prompt: Prompt) -> tuple[tuple[ReplyCall, ...], tuple[str, ...]]:
    """Return one call, or one for each place if the tool takes one and the prompt names several."""
    if tool.kind == "custom":
        return (ReplyCall(name=tool.name, raw=prompt.quoted[0] if prompt.quoted else prompt.text),), ()
    schema = parameters_of(tool)
    places = [name for name in required_of(schema, schema) if kind_of(name) == PLACE]
    prompts = [prompt]
    if len(places) == 1 and prompt.places:
        prompts = [msgspec.structs.replace(prompt, places=(place,)) for place in prompt.places[:CALLS_MAX]]
    calls: list[ReplyCall] = []
    missing: tuple[str, ...] = ()
    for one in prompts:
        filler = Filler(one)
        calls.append(ReplyCall(name=tool.name, args=filler.fill(schema, schema)))
        missing = tuple(filler.missing)
    return tuple(calls), missing
