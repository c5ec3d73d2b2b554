"""Review of changed MCP tools: shows the accepted and the new version side by side and asks for a decision."""

import sys
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from shutil import get_terminal_size

from treadle.terminal.rendering.column_width import chop
from treadle.terminal.rendering.column_width import columns as columns_of
from treadle.terminal.rendering.sanitize import one_line, reveal
from treadle.tools.mcp.tool_pins import Pins, ToolAwaitingReview

CONTEXT_LINES = 2
LINES_MAX = 400
COLUMNS_MIN = 60
_WORDS = {
    "new": "is new since the first listing of the server",
    "changed": "changed since it was agreed to",
    "refused": "was refused",
}


def lines_of(server: str, waiting: ToolAwaitingReview, columns: int) -> list[str]:
    """Show one tool: old words and schemas on the left, new ones on the right, `|` between lines that differ."""
    head = f"{server}: {one_line(reveal(waiting.tool))} {_WORDS[waiting.kind]}"
    if waiting.kind != "new" and not waiting.before:
        head += " (how it looked then was not kept)"
    rows = list(_rows(waiting.before.splitlines(), waiting.now.splitlines()))
    width = (max(columns, COLUMNS_MIN) - 3) // 2
    shown = [_row(left, sign, right, width) for left, sign, right in rows[:LINES_MAX]]
    if len(rows) > LINES_MAX:
        shown.append(f"… and {len(rows) - LINES_MAX} lines more; --json has all")
    return [head, _row("agreed to" if waiting.before else "", " ", "now", width), *shown]


def ask(pins: Pins, place: str, server: str, waiting: ToolAwaitingReview) -> None:
    """Show one tool and store the person's decision."""
    print("\n".join(lines_of(server, waiting, get_terminal_size().columns)))
    print("Accept it? [a]ccept, [r]efuse, Enter leaves it waiting: ", end="", flush=True)
    answer = sys.stdin.readline().strip().lower()
    decide = {"a": pins.accept, "accept": pins.accept, "r": pins.refuse, "refuse": pins.refuse}.get(answer)
    if decide is None:
        print("it waits")
        return
    if not decide(place, [waiting.tool], waiting.digest):
        print("it changed meanwhile, and nothing was decided: look again")
        return
    print("accepted" if decide == pins.accept else "refused")


def _rows(before: list[str], now: list[str]) -> Iterator[tuple[str, str, str]]:
    """Pair lines; long runs of equal ones are left out."""
    for group in SequenceMatcher(None, before, now, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        for tag, left_from, left_to, right_from, right_to in group:
            left, right = before[left_from:left_to], now[right_from:right_to]
            sign = {"equal": " ", "replace": "|", "delete": "<", "insert": ">"}[tag]
            for number in range(max(len(left), len(right))):
                yield (
                    left[number] if number < len(left) else "",
                    sign,
                    right[number] if number < len(right) else "",
                )


def _row(left: str, sign: str, right: str, width: int) -> str:
    """Format two lines side by side, each wrapped within its half."""
    halves = [chop(one_line(reveal(text)), width) or [""] for text in (left, right)]
    rows = zip_longest(*halves, fillvalue="")
    return "\n".join(f"{a}{' ' * (width - columns_of(a))} {sign} {b}".rstrip() for a, b in rows)
