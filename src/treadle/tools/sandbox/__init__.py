"""Commands in a sandbox: levels found by a real probe, one helper process that kills all it started.

`execd` and what it imports run in a bare helper process: standard library only, nothing else of Treadle.
"""

from treadle.tools.sandbox.helper_client import Rules, Sandbox
from treadle.tools.sandbox.isolation_level import (
    Choice,
    Found,
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
    "Found",
    "Rules",
    "Sandbox",
    "can_read_only",
    "choose_level",
    "describe",
    "describe_read_only",
    "find_level",
    "hiding_gaps",
    "network_gap",
    "shortfalls",
]
