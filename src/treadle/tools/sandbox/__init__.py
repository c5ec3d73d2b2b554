"""Commands in a sandbox: levels found by a real probe, one helper process that kills all it started."""

from treadle.tools.sandbox.client import Rules, Sandbox
from treadle.tools.sandbox.level import (
    Choice,
    Found,
    choose_level,
    describe,
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
    "choose_level",
    "describe",
    "find_level",
    "hiding_gaps",
    "network_gap",
    "shortfalls",
]
