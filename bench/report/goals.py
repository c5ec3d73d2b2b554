"""The goals as ratios, and what was reached: computed from the kept results, never typed. Pure.

Rates are compared by the CPU of one request or event, because that is what a shared machine does not bend.
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

from bench.report.figures import MILLI, Table

OURS, BARE = "Treadle, SQLite", "Treadle, no journal"

Figures = Mapping[str, Any]


class Goal(NamedTuple):
    """Something to reach: `at_least` or at most, the gate that must hold, and the goal, which figures may decide."""

    name: str
    result: str
    reached: Callable[[Figures], float]
    gate: float
    goal: float | Callable[[Figures], float]
    at_least: bool = False

    def row(self, figures: Figures) -> list[str]:
        """Return the line of the table."""
        value = self.reached(figures)
        goal = self.goal(figures) if callable(self.goal) else self.goal
        sign = "≥" if self.at_least else "≤"
        verdict = "goal" if self._holds(value, goal) else "gate" if self._holds(value, self.gate) else "missed"
        return [self.name, f"{value:,.3g}", f"{sign} {self.gate:.3g}", f"{sign} {goal:.3g}", verdict]

    def _holds(self, value: float, bound: float) -> bool:
        return value >= bound if self.at_least else value <= bound


def _middle(rows: list[dict[str, float]], key: str = "cpu_s") -> float:
    return median(row[key] for row in rows)


def _plain(peer: str) -> Callable[[Figures], float]:
    return lambda figures: _middle(figures[peer]) / _middle(figures[OURS])


def _added(peer: str, key: str) -> Callable[[Figures], float]:
    def reached(figures: Figures) -> float:
        bare = _middle(figures["direct"], key)
        return (_middle(figures[OURS], key) - bare) / max(_middle(figures[peer], key) - bare, 1e-9)

    return reached


def _paced(peer: str) -> Callable[[Figures], float]:
    return lambda figures: _middle(figures["paced"][f"{OURS} chat"]) / _middle(figures["paced"][f"{peer} chat"])


def _burst(peer: str) -> Callable[[Figures], float]:
    return lambda figures: (
        _middle(figures["bursts"][f"{peer} chat 100"]) / _middle(figures["bursts"][f"{OURS} chat 100"])
    )


def _late_ms(name: str, more_ms: float = 0.0) -> Callable[[Figures], float]:
    def reached(figures: Figures) -> float:
        own, bare = (_middle(figures["paced"][f"{each} chat"], "p99_s") for each in (name, "direct"))
        return (own - bare) * MILLI + more_ms

    return reached


def _loop(peer: str) -> Callable[[Figures], float]:
    return lambda figures: _middle(figures[f"{OURS} 50"]) / _middle(figures[f"{peer} 50"])


def _tls(key: str) -> Callable[[Figures], float]:
    return lambda figures: _middle(figures["TLS"], key) / _middle(figures["clear"], key)


def _appends(engine: str) -> Callable[[Figures], float]:
    key = f"{engine} 64"
    return lambda figures: _middle(figures["journal"][key], "a_second") / _middle(figures["plain"][key], "a_second")


def _stream_kb(figures: Figures) -> float:
    held = figures[OURS]
    return (held["full"] - held["idle"]) / max(held["streams"], 1) / 1024


def _long_request(figures: Figures) -> float:
    [rows] = [found for name, found in figures.items() if name.startswith("request chat, 400")]
    return median(own / plain for own, plain in rows)


NGINX_AND_2 = _late_ms("nginx", 2.0)
GOALS = (
    Goal("plain requests of a core, × LiteLLM", "plain-peers", _plain("LiteLLM"), 60, 120, True),
    Goal("plain requests of a core, × nginx", "plain-peers", _plain("nginx"), 0.15, 0.25, True),
    Goal("plain requests of a core, × TensorZero", "plain-peers", _plain("TensorZero"), 3, 5, True),
    Goal("plain requests of a core, × Portkey", "plain-peers", _plain("Portkey"), 5, 9, True),
    Goal("CPU of a paced event, × nginx", "streams-peers", _paced("nginx"), 3.5, 2.5),
    Goal("CPU of a paced event, × LiteLLM", "streams-peers", _paced("LiteLLM"), 1 / 20, 1 / 30),
    Goal("events of a core in bursts of 100, × nginx", "streams-peers", _burst("nginx"), 0.5, 0.85, True),
    Goal("events of a core in bursts of 100, × LiteLLM", "streams-peers", _burst("LiteLLM"), 45, 80, True),
    Goal("added latency p50, × nginx", "plain-peers", _added("nginx", "p50_s"), 4, 2.5),
    Goal("added latency p99, × nginx", "plain-peers", _added("nginx", "p99_s"), 6, 3.5),
    Goal("added latency p50, × LiteLLM", "plain-peers", _added("LiteLLM", "p50_s"), 1 / 10, 1 / 18),
    Goal("added latency p99, × LiteLLM", "plain-peers", _added("LiteLLM", "p99_s"), 1 / 8, 1 / 14),
    Goal("a paced event late p99, ms over direct; goal: nginx + 2", "streams-peers", _late_ms(OURS), 10, NGINX_AND_2),
    Goal("memory idle, MB", "memory-peers", lambda figures: figures[OURS]["idle"] / 2**20, 65, 45),
    Goal("memory for an open stream, KB", "memory-peers", _stream_kb, 60, 35),
    Goal("CPU from start to first answer, s", "start-peers", lambda found: _middle(found["starts"][OURS]), 0.8, 0.4),
    Goal("packages of the base install", "start-peers", lambda found: found["installed"][OURS][1], 15, 8),
    Goal("MB of the base install", "start-peers", lambda found: found["installed"][OURS][0] / 1e6, 80, 55),
    Goal("CPU of a tool round with journal, × openai-agents", "loops-peers", _loop("openai-agents"), 1 / 25, 1 / 50),
    Goal("CPU of a tool round with journal, × pydantic-ai", "loops-peers", _loop("pydantic-ai"), 1 / 25, 1 / 50),
    Goal("CPU of a tool round with journal, × LangGraph", "loops-peers", _loop("LangGraph"), 1 / 25, 1 / 50),
    Goal(
        "CPU of a tool round, 50 rounds × 10 rounds",
        "loops-peers",
        lambda found: _middle(found[f"{OURS} 50"]) / _middle(found[f"{OURS} 10"]),
        1.5,
        1.2,
    ),
    Goal("durable appends of 64 writers, SQLite, × one by one", "journal", _appends("SQLite"), 8, 15, True),
    Goal("durable appends of 64 writers, PostgreSQL, × one by one", "journal", _appends("PostgreSQL"), 5, 10, True),
    Goal("CPU of a plain request by TLS, × clear", "tls", _tls("plain_s"), 1.9, 1.9),
    Goal("CPU of a paced event by TLS, × clear", "tls", _tls("event_s"), 1.9, 1.9),
    Goal("p50 at 50 requests/s by TLS, × clear", "tls", _tls("p50_s"), 1.9, 1.9),
    Goal("a request with 400 turns read and written, × json", "codecs", _long_request, 0.6, 0.35),
)


def table(kept: Mapping[str, Figures]) -> Table:
    """Return every goal whose measurement is there; a peer that was left out leaves its goals out."""
    rows: list[list[str]] = []
    for goal in GOALS:
        try:
            rows.append(goal.row(kept[goal.result]))
        except KeyError:
            continue
    return Table("Goals and what was reached", ["", "reached", "must hold", "goal", ""], rows)
