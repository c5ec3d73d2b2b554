"""Restricts a repository's treadle.toml when the user has another one: it may only tighten settings.

A person who opens a repository has not read its files. Its rules may tighten tools, a few keys may be lowered
or turned off, and everything else is left out with a warning that names the key. Pure; `reader` opens the files.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from treadle.config.environment import Setting
from treadle.config.error_messages import dotted
from treadle.config.settings import Settings

_RULES = ("tools", "rule")
_TIGHTENED = ("tools", "tighten")
_EFFECTS = ("allow", "ask", "deny")
_APPROVALS = ("never", "by_effect", "always")


def _lower(value: Any, standing: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= standing


def _lower_or_any(value: Any, standing: Any) -> bool:
    """Lower, where 0 stands for no bound."""
    return _lower(value, standing or float("inf"))


def _only(wanted: Any) -> Callable[[Any, Any], bool]:
    return lambda value, _: value == wanted


def _stricter(order: tuple[str, ...]) -> Callable[[Any, Any], bool]:
    return lambda value, standing: value in order and order.index(value) >= order.index(standing)


def _fewer(value: Any, standing: Any) -> bool:
    return isinstance(value, list) and set(map(str, cast("list[object]", value))) <= set(standing)


TIGHTER: dict[str, Callable[[Any, Any], bool]] = {
    "limits.max_iterations": _lower,
    "limits.max_total_tool_calls": _lower,
    "limits.max_tool_output_bytes": _lower,
    "limits.tool_timeout_s": _lower,
    "limits.identical_repeats_max": _lower,
    "limits.arguments_bytes_max": _lower,
    "limits.wall_s": _lower_or_any,
    "terminal.max_tool_turns": _lower,
    "terminal.max_tool_calls": _lower,
    "terminal.wall_s": _lower_or_any,
    "terminal.local": _fewer,
    "tools.enabled": _only(wanted=False),
    "tools.local.enabled": _fewer,
    "tools.local.policy": _only(wanted="ask"),
    "tools.local.network": _only(wanted=False),
    "tools.local.allow_unconfined": _only(wanted=False),
    "tools.web.enabled": _only(wanted=False),
    "policy.taint": _only(wanted="ask"),
    "repair.effects": _stricter(_EFFECTS),
    "strict_fidelity": _only(wanted=True),
    **{f"policy.{effect}.approval": _stricter(_APPROVALS) for effect in ("read", "idempotent", "write", "destructive")},
}
"""The keys that a repository may set, and when a value is no looser than the user's."""


SWITCHES: dict[str, str] = {
    "tools.enabled": "switches off all server tools",
    "tools.local.enabled": "leaves only these local tools",
    "tools.web.enabled": "switches off the web tools",
    "terminal.local": "leaves only these local tools in the terminal",
}
"""Tools that a repository switches off or restricts with a key: always reported, since no user asked for it."""


class Tightened(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a repository that apply, and warnings about the others."""

    settings: list[Setting]
    warnings: list[str]


def tighten(given: Iterable[Setting], settings: Settings, file: str) -> Tightened:
    """Select the settings that tighten the user's; `[[tools.rule]]` rows are appended to `[[tools.tighten]]`."""
    taken: list[Setting] = []
    warnings: list[str] = []
    first = len(settings.tools.tighten)
    ours: dict[str, object] = msgspec.to_builtins(settings)
    named: set[int] = set()
    for setting in given:
        path = setting.path
        if setting.value == {}:  # the head of a table that sets nothing
            continue
        if path[:2] in (_RULES, _TIGHTENED) and len(path) > 3 and isinstance(path[2], int):
            place = (*_TIGHTENED, first + path[2])
            if path[2] not in named:
                named.add(path[2])
                name = f"{file} [[{dotted(path[:2])}]] #{path[2] + 1}"
                taken.append(Setting(path=(*place, "name"), value=name, origin=setting.origin))
            if path[3:] != ("name",):
                taken.append(Setting(path=(*place, *path[3:]), value=setting.value, origin=setting.origin))
            continue
        judge = TIGHTER.get(dotted(path))
        if judge is not None and judge(setting.value, _value_at(ours, path)):
            taken.append(setting)
        else:
            why = "would loosen it" if judge is not None else "is not for a repository to set"
            warnings.append(f"{setting.origin}: {dotted(path)} {why}, and is left out")
    return Tightened(settings=taken, warnings=warnings)


def _value_at(tree: Mapping[str, object], path: tuple[str | int, ...]) -> Any:
    value: Any = tree
    for step in path:
        value = value[step]
    return value
