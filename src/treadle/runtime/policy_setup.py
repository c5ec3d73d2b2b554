"""Builds the tool policies from the settings."""

import logging

import msgspec

from treadle.config.settings import EffectSection, Settings, ToolRule
from treadle.core.tool_definitions import Effect
from treadle.tools.effective_policy import Policies
from treadle.tools.policy_rules import EffectDefaults, PolicyRule

log = logging.getLogger("treadle.tools")

_EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "write", "destructive")


def make_policies(settings: Settings) -> Policies:
    """Return the policies of the settings; a repository rule that would loosen one is ignored and logged."""
    rules = [_rule(rule, f"[[tools.rule]] #{number}") for number, rule in enumerate(settings.tools.rule, 1)]
    rules += [
        _rule(rule, f"[[tools.tighten]] #{number}", is_repository=True)
        for number, rule in enumerate(settings.tools.tighten, 1)
    ]
    return Policies(
        rules,
        by_effect={effect: _defaults(getattr(settings.policy, effect)) for effect in _EFFECTS},
        timeout_s=settings.limits.tool_timeout_s,
        told=lambda words: log.warning("%s", words),
    )


def _rule(rule: ToolRule, by: str, *, is_repository: bool = False) -> PolicyRule:
    fields = {name: getattr(rule, name) for name in ToolRule.__struct_fields__ if name != "name"}
    return PolicyRule(**fields, by=rule.name or by, is_repository=is_repository)


def _defaults(section: EffectSection) -> EffectDefaults:
    """Return the values of a section that differ from their defaults."""
    fields = msgspec.structs.fields(EffectSection)
    chosen = {field.name: getattr(section, field.name) for field in fields}
    return EffectDefaults(**{field.name: chosen[field.name] for field in fields if chosen[field.name] != field.default})
