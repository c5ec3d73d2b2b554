"""`python -m bench.dialects`: what looking for calls in text costs, per delta of prose and per long argument."""

import argparse
import json
import time
from collections.abc import Callable

import msgspec

from treadle.cli.dialect_rendering import render
from treadle.core.events import Finished, ItemAdded, ModelEvent, TextDelta
from treadle.core.items import MessageItem
from treadle.core.plan import Plan
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.text_calls.dialect_table import DIALECTS
from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner
from treadle.protocols.text_calls.schema_values import TextTools
from treadle.protocols.text_calls.text_call_recovery import RepairRules, Scanner

TOOL = ToolSpec(name="save_page", parameters=msgspec.Raw(b'{"properties": {"body": {"type": "string"}}}'))
PROSE = "The quick brown fox jumps over the lazy dog, and then it does so once more."
SIZES = (65_536, 1_048_576)
SIZES_QUICK = (8_192, 65_536)
DELTA_CHARS = 4
ROUNDS = 5


def best_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the shortest time that a piece of work took."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def deltas(text: str) -> list[ModelEvent]:
    """Return an answer of ordinary text, a word or so at a time."""
    words = [f"{word} " for word in (text * 400).split(" ")]
    return [TextDelta(index=0, text=word) for word in words]


def pass_on(events: list[ModelEvent]) -> list[ModelEvent]:
    """Do what a stage that does nothing does."""
    return [own for event in events for own in [event]]


def scan(events: list[ModelEvent]) -> list[ModelEvent]:
    """Look for calls in every dialect that is on by default."""
    scanner = Scanner(Plan(items=(), model="m", tools=(TOOL,)), RepairRules())
    begun = scanner.feed(ItemAdded(index=0, item=MessageItem(role="assistant")))
    told = [own for event in events for own in scanner.feed(event)]
    return [*begun, *told, *scanner.feed(Finished(stop="done"))]


def read_call(text: str) -> None:
    """Read one call in small deltas."""
    scanner = TextScanner(TextTools([TOOL]), DIALECTS)
    pieces = [piece for at in range(0, len(text), DELTA_CHARS) for piece in scanner.feed(text[at : at + DELTA_CHARS])]
    assert any(isinstance(piece, FoundCalls) for piece in [*pieces, *scanner.finish()])


def main() -> None:
    """Print the cost per delta, and for one dialect of each grammar how a long argument compares to a short one."""
    parser = argparse.ArgumentParser(prog="python -m bench.dialects", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter arguments: to see that it works")
    sizes = SIZES_QUICK if parser.parse_args().quick else SIZES
    for name, text in (("ordinary text", f"{PROSE} "), ("with line feeds", f"{PROSE}\n")):
        events = deltas(text)
        bare_s, scanned_s = best_s(lambda events=events: pass_on(events)), best_s(lambda events=events: scan(events))
        print(f"{name}: {(scanned_s - bare_s) / len(events) * 1e6:.2f} µs a delta more than without")
    figures: dict[str, list[float]] = {}
    for dialect in {type(each.grammar): each for each in DIALECTS}.values():
        texts = [render(dialect, [("save_page", {"body": "x < 'y' " * (size // 8)})]) for size in sizes]
        figures[dialect.id] = [best_s(lambda text=text: read_call(text), 1) for text in texts]
    for name, (short_s, long_s) in figures.items():
        short, long = (f"{size // 1024:,} KiB" for size in sizes)
        print(f"{name:<18} {short} {short_s * 1e3:6.0f} ms   {long} {long_s * 1e3:6.0f} ms   x {long_s / short_s:.1f}")
    worst = max(figures, key=lambda name: figures[name][1] / figures[name][0])
    print(json.dumps({"worst": worst, "ratio": round(figures[worst][1] / figures[worst][0], 1)}))


if __name__ == "__main__":
    main()
