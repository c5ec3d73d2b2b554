"""What a configuration may say of tools: rules by name and source, defaults by effect, and which way is tighter."""

import math
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, get_args

import msgspec

from treadle.core.tool_definitions import Approval, Effect, ServerTool, ToolPolicy

_EFFECTS: tuple[Effect, ...] = get_args(Effect)
_APPROVALS: tuple[Approval, ...] = ("never", "by_effect", "always")


def _lower(value: Any, standing: Any) -> bool:
    return value < standing


def _yes(value: Any, standing: Any) -> bool:
    return bool(value)


TIGHTER: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "effect": ("towards destructive", lambda value, standing: _EFFECTS.index(value) > _EFFECTS.index(standing)),
    "approval": ("towards always", lambda value, standing: _APPROVALS.index(value) > _APPROVALS.index(standing)),
    "timeout_s": ("lower", _lower),
    "retries": ("lower", _lower),
    "output_bytes_max": ("lower", _lower),
    "parallel": ("false", lambda value, standing: not value),
    "resources": ('["*"]', lambda value, standing: value == ("*",)),
    "exec": ("true", _yes),
    "egress": ("true", _yes),
    "untrusted": ("true", _yes),
    "rate_per_min": ("lower, and 0 is none", lambda value, standing: value > 0 and value < (standing or math.inf)),
}
"""Which way of each field of a policy is the tighter one: in words, and of two values that differ."""


class EffectDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What tools of one effect get where they say nothing themselves; None leaves it."""

    approval: Approval | None = None
    timeout_s: float | None = None
    retries: int | None = None
    output_bytes_max: int | None = None
    rate_per_min: int | None = None


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """What is set for every tool whose name or source fits `match`; None leaves a field as it is.

    `by` names the rule to people. One of a repository may only tighten.
    """

    match: tuple[str, ...]
    by: str
    is_repository: bool = False
    enabled: bool | None = None
    effect: Effect | None = None
    approval: Approval | None = None
    timeout_s: float | None = None
    retries: int | None = None
    output_bytes_max: int | None = None
    rate_per_min: int | None = None
    parallel: bool | None = None
    resources: tuple[str, ...] | None = None
    exec: bool | None = None
    egress: bool | None = None
    untrusted: bool | None = None


def fits(tool: ServerTool, patterns: Iterable[str]) -> bool:
    """Tell whether one of the patterns is that of the tool's name, or of where it comes from (`local`, `mcp:files`)."""
    return any(fnmatchcase(tool.name, each) or fnmatchcase(tool.source, each) for each in patterns)


def given(setting: PolicyRule | EffectDefaults) -> dict[str, Any]:
    """Return the fields of a policy that a rule sets."""
    named = {name: getattr(setting, name, None) for name in ToolPolicy.__struct_fields__}
    return {name: value for name, value in named.items() if value is not None}


def is_tighter(field: str, value: Any, standing: Any) -> bool:
    """Tell whether a value of a policy's field lets a tool do no more than the standing one does."""
    return value == standing or TIGHTER[field][1](value, standing)
