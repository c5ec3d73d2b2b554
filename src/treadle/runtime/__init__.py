"""Builds everything a process needs from its settings. Server, terminal, evaluations and library all start here."""

from treadle.runtime.parts import Parts, RandomIds, SystemClock
from treadle.runtime.process import Runtime
from treadle.runtime.toolset import guest_limits, guest_modules
from treadle.runtime.upstreams import repair_rules

__all__ = ["Parts", "RandomIds", "Runtime", "SystemClock", "guest_limits", "guest_modules", "repair_rules"]
