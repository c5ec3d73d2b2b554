"""Which tools are offered and whether one must be called, in the terms that an upstream has.

Where it lacks a form, the nearest that it has takes its place: a table, with a note for each step down.
"""

import msgspec

from treadle.core.plan import Plan
from treadle.core.request import NoteAction, Options
from treadle.core.tool_definitions import AUTO, ChoiceMode, ToolChoice, ToolSpec
from treadle.protocols.translation.upstream_features import Traits
from treadle.protocols.translation_notes import HOSTED, Notes

_FALLBACKS: dict[ChoiceMode, tuple[tuple[ChoiceMode, NoteAction], ...]] = {
    "named": (("required", "emulated"), ("auto", "coerced")),
    "required": (("auto", "coerced"),),
    "none": (("auto", "emulated"),),
    "auto": (),
}
"""What a choice becomes: a named tool is offered alone, with `none` nothing is offered."""


def settle_tools(plan: Plan, traits: Traits, notes: Notes) -> Plan:
    """Return the plan with the tools that are offered, and a choice that fits them and the upstream."""
    allowed, most = plan.tool_choice.allowed, traits.tools_max
    if (
        plan.tool_choice.mode == "auto"
        and allowed is None
        and plan.options.parallel_tool_calls is None
        and (most is None or len(plan.tools) <= most)
    ):
        return plan
    # Narrowing the list itself says the same as `allowed_tools` and works with every upstream.
    tools = plan.tools if allowed is None else tuple([spec for spec in plan.tools if spec.name in allowed])
    tools = _within(tools, traits, notes)
    options = _without_hosted(plan, traits)
    tools, choice = _settle_choice(tools, plan.tool_choice, traits, notes, has_hosted=HOSTED in options.extra)
    parallel = _parallel(plan, traits, notes) if tools and choice.mode != "none" else None
    if parallel != options.parallel_tool_calls:
        options = msgspec.structs.replace(options, parallel_tool_calls=parallel)
    return msgspec.structs.replace(plan, tools=tools, tool_choice=choice, options=options)


def _without_hosted(plan: Plan, traits: Traits) -> Options:
    """Return the options without the provider's own tools where none of them may be called.

    A list of allowed tools has narrowed these already, where the client's protocol can name them in it.
    """
    options, mode = plan.options, plan.tool_choice.mode
    is_alone = mode == "named" and mode not in traits.choices
    if HOSTED not in options.extra or not (is_alone or mode == "none"):
        return options
    return msgspec.structs.replace(options, extra={name: raw for name, raw in options.extra.items() if name != HOSTED})


def _within(tools: tuple[ToolSpec, ...], traits: Traits, notes: Notes) -> tuple[ToolSpec, ...]:
    most = traits.tools_max
    if most is None or len(tools) <= most:
        return tools
    notes.add("tools_dropped", "dropped", f"the upstream takes {most} tools", f"tools[{most}]", len(tools) - most)
    return tools[:most]


def _settle_choice(
    tools: tuple[ToolSpec, ...], choice: ToolChoice, traits: Traits, notes: Notes, *, has_hosted: bool
) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    mode = choice.mode
    if not tools and not (has_hosted and mode == "required"):
        if mode in ("required", "named"):
            notes.add("tool_choice_coerced", "coerced", "there is no tool to call", "tool_choice")
        return tools, AUTO
    if mode in traits.choices:
        return tools, ToolChoice(mode=mode, name=choice.name)
    nearest, action = next(step for step in _FALLBACKS[mode] if step[0] in traits.choices)
    notes.add("tool_choice_coerced", action, f"the upstream has no tool_choice {mode}", "tool_choice")
    if mode == "none":
        return (), AUTO
    if mode == "named":
        tools = tuple(spec for spec in tools if spec.name == choice.name) or tools
    return tools, ToolChoice(mode=nearest)


def _parallel(plan: Plan, traits: Traits, notes: Notes) -> bool | None:
    wanted = plan.options.parallel_tool_calls
    if wanted is None or traits.has_parallel_flag:
        return wanted
    if not wanted:
        notes.add("parallel_dropped", "dropped", "the upstream cannot be held to one call", "parallel_tool_calls")
    return None
