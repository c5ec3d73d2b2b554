"""Regular expressions mean the same on every Python that Treadle runs on."""

import ast
import re

from rules.tree import modules, parsed, shown

POSSESSIVE_GROUP = re.compile(r"\([^)]+\)(?:[*+?]|\{\d*,?\d*\})\+")
HARMLESS = {
    ("src/treadle/core/json.py", r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'),
    ("src/treadle/core/json.py", r'[^"\\]*+(?:\\.[^"\\]*+)*+"?'),
}
"""Their group can only break off at a lone backslash at the very end, which is no structure either way."""


def test_no_possessive_group_can_break_off_midway() -> None:
    """Until 3.11.5 such a group keeps what it only began to match; 3.11.2 is the Python of Debian 12."""
    found = {
        (shown(path), node.value.decode() if isinstance(node.value, bytes) else node.value)
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if POSSESSIVE_GROUP.search(node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value)
    }
    assert found - HARMLESS == set()
