"""Runs commands in the strongest isolation that this machine offers, found by a probe."""

from treadle.tools.sandbox.helper_client import CommandSandbox, SandboxRules
from treadle.tools.sandbox.isolation_level import (
    Choice,
    FoundLevel,
    can_read_only,
    choose_level,
    describe,
    describe_read_only,
    find_level,
    hiding_gaps,
    network_gap,
    shortfalls,
)

__all__ = [
    "Choice",
    "CommandSandbox",
    "FoundLevel",
    "SandboxRules",
    "can_read_only",
    "choose_level",
    "describe",
    "describe_read_only",
    "find_level",
    "hiding_gaps",
    "network_gap",
    "shortfalls",
]
