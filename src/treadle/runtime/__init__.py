"""Builds everything a process needs from its settings. Server, terminal and library start here."""

from treadle.runtime.injected_parts import Parts, RandomIds, SystemClock
from treadle.runtime.provider_setup import repair_rules
from treadle.runtime.runtime import Runtime
from treadle.runtime.toolset import guest_limits, guest_modules

__all__ = ["Parts", "RandomIds", "Runtime", "SystemClock", "guest_limits", "guest_modules", "repair_rules"]
