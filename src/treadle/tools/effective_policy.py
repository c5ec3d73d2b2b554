"""The effective policy of a tool: what it declares, laid under what the configuration says, with the reason of each.

What stands later wins: the built-in default, what `limits` and `[policy]` give tools that say nothing themselves, the
declaration (or a server's annotation), then every rule that fits, in order. A repository's rule that would loosen
something is left out, and said so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.tool_definitions import Effect
from treadle.tools.function_tools import DEFAULT, Tool
from treadle.tools.policy_rules import EffectDefaults, PolicyRule, fits, given, is_tighter

TIMEOUT_KEY = "limits.tool_timeout_s"
ENABLED = "enabled"


class Policies:
    """What the configuration says of all tools. `told` hears of rules that may not do what they say."""

    def __init__(
        self,
        rules: Sequence[PolicyRule] = (),
        *,
        by_effect: Mapping[Effect, EffectDefaults] | None = None,
        timeout_s: float | None = None,
        told: Callable[[str], None] | None = None,
    ) -> None:
        self._rules = tuple(rules)
        self._by_effect = dict(by_effect or {})
        self._timeout_s = timeout_s
        self._told = told
        self._heard: set[str] = set()

    def apply(self, tool: Tool) -> Tool:
        """Return the tool under its effective policy."""
        fields: dict[str, Any] = msgspec.structs.asdict(tool.policy)
        why, is_on = dict(tool.why), tool.is_on
        for rule in self._rules:
            if fits(tool.declared, rule.match):
                self._obey(rule, tool.name, fields, why)
                if rule.enabled is not None and (is_on or not rule.is_repository):
                    is_on = rule.enabled
                    why[ENABLED] = rule.by
                elif rule.enabled:
                    self._refuse(rule, tool.name, ENABLED, why)
        self._fill(fields, why)
        if fields == msgspec.structs.asdict(tool.policy) and why == tool.why and is_on == tool.is_on:
            return tool
        return tool.under(msgspec.structs.replace(tool.policy, **fields), why, is_on=is_on)

    def _obey(self, rule: PolicyRule, name: str, fields: dict[str, Any], why: dict[str, str]) -> None:
        for field, value in given(rule).items():
            if rule.is_repository and not is_tighter(field, value, fields[field]):
                self._refuse(rule, name, field, why)
                continue
            if value != fields[field] or why.get(field, DEFAULT) == DEFAULT:
                fields[field], why[field] = value, rule.by

    def _fill(self, fields: dict[str, Any], why: dict[str, str]) -> None:
        """Give fields that nobody set what the configuration says of their effect, else of all tools."""
        defaults = self._by_effect.get(fields["effect"])
        for field, value in (given(defaults) if defaults is not None else {}).items():
            if why.get(field, DEFAULT) == DEFAULT:
                fields[field], why[field] = value, f"[policy.{fields['effect']}]"
        if self._timeout_s not in (None, fields["timeout_s"]) and why.get("timeout_s", DEFAULT) == DEFAULT:
            fields["timeout_s"], why["timeout_s"] = self._timeout_s, TIMEOUT_KEY

    def _refuse(self, rule: PolicyRule, name: str, field: str, why: dict[str, str]) -> None:
        """Leave a field as it is, and say so once."""
        why[field] = f"{why.get(field, DEFAULT)}; {rule.by} may not loosen it"
        words = f"{rule.by}: {field} of {name} is left as it is: a repository's own file may only tighten"
        if self._told is not None and words not in self._heard:
            self._heard.add(words)
            self._told(words)
