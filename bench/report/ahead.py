"""Where a peer is ahead, found in the kept results and told plainly. Pure."""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

from bench.report.figures import Table
from bench.report.goals import BARE, OURS

Figures = Mapping[str, Any]
CLEARLY = 0.95
"""What is below this share of Treadle's figure is ahead; nearer than that is a draw."""


class Aspect(NamedTuple):
    """Something of which less is better: where it is kept, and every gateway's figure."""

    name: str
    result: str
    values: Callable[[Figures], dict[str, float]]
    base: str = OURS


def _rows(key: str) -> Callable[[Figures], dict[str, float]]:
    return lambda figures: {name: median(row[key] for row in rows) for name, rows in figures.items()}


def _latency(figures: Figures) -> dict[str, float]:
    found = _rows("p50_s")(figures)
    bare = found.pop("direct")
    return {name: value - bare for name, value in found.items()}


def _streams(kind: str, ending: str, key: str = "cpu_s") -> Callable[[Figures], dict[str, float]]:
    return lambda figures: {
        name.removesuffix(ending): median(row[key] for row in rows)
        for name, rows in figures[kind].items()
        if name.endswith(ending)
    }


def _held(figures: Figures) -> dict[str, float]:
    return {name: held["idle"] for name, held in figures.items() if isinstance(held, dict)}


def _a_stream(figures: Figures) -> dict[str, float]:
    return {
        name: (held["full"] - held["idle"]) / max(held["streams"], 1)
        for name, held in figures.items()
        if isinstance(held, dict)
    }


def _installed(at: int) -> Callable[[Figures], dict[str, float]]:
    return lambda figures: {name: size[at] for name, size in figures["installed"].items()}


ASPECTS = (
    Aspect("CPU of a plain request", "plain-peers", _rows("cpu_s")),
    Aspect("added latency p50", "plain-peers", _latency),
    Aspect("CPU of an event, bursts of 100, same protocol", "streams-peers", _streams("bursts", " chat 100")),
    Aspect("CPU of an event, bursts of 1,000, same protocol", "streams-peers", _streams("bursts", " chat 1000")),
    Aspect("CPU of an event, bursts of 100, translated", "streams-peers", _streams("bursts", " messages 100")),
    Aspect("CPU of an event, bursts of 1,000, translated", "streams-peers", _streams("bursts", " messages 1000")),
    Aspect("CPU of an event that comes alone, same protocol", "streams-peers", _streams("paced", " chat")),
    Aspect("CPU of an event that comes alone, translated", "streams-peers", _streams("paced", " messages")),
    Aspect("time to the first event, same protocol", "streams-peers", _streams("paced", " chat", "first_s")),
    Aspect("time to the first event, translated", "streams-peers", _streams("paced", " messages", "first_s")),
    Aspect("memory idle", "memory-peers", _held),
    Aspect("memory for an open stream", "memory-peers", _a_stream),
    Aspect("CPU of a start", "start-peers", lambda figures: _rows("cpu_s")(figures["starts"])),
    Aspect("installed bytes", "start-peers", _installed(0)),
    Aspect("installed packages", "start-peers", _installed(1)),
    Aspect("CPU of a tool round, 10 rounds", "loops-peers", lambda figures: _loops(figures, 10), BARE),
    Aspect("CPU of a tool round, 50 rounds", "loops-peers", lambda figures: _loops(figures, 50), BARE),
)


def _loops(figures: Figures, length: int) -> dict[str, float]:
    ending = f" {length}"
    return {name.removesuffix(ending): each for name, each in _rows("cpu_s")(figures).items() if name.endswith(ending)}


def table(kept: Mapping[str, Figures]) -> Table:
    """Return who is ahead in what, with their figure as a share of Treadle's."""
    rows: list[list[str]] = []
    for aspect in ASPECTS:
        if aspect.result not in kept:
            continue
        values = aspect.values(kept[aspect.result])
        own = values[aspect.base]
        shares = {name: value / own for name, value in values.items() if not name.startswith(("Treadle", "direct"))}
        ahead = [f"{name} ×{share:.2g}" for name, share in sorted(shares.items(), key=_share) if share < CLEARLY]
        rows.append([aspect.name, ", ".join(ahead) or "nobody"])
    return Table("Who is ahead, with their figure as a multiple of Treadle's", ["less is better", "ahead"], rows)


def _share(each: tuple[str, float]) -> float:
    return each[1]
