"""Turns measurements into the table: ratios first, each with its spread over the rounds of the same run."""

from statistics import quantiles
from typing import NamedTuple

MICRO = 1e6


class Measure(NamedTuple):
    """One batch of requests in one round: seconds for one request, of the wall clock and of the server's CPU."""

    wall_s: float
    cpu_s: float | None


class Row(NamedTuple):
    """One line of the table: what Treadle costs for one unit (a request, an event, a round)."""

    case: str
    journal: str
    ratio: list[float]
    added_us: list[float]
    cpu_us: list[float]


Rounds = dict[tuple[str, str], list[Measure]]


def row_against_direct(rounds: Rounds, case: str, journal: str, units: int, title: str) -> Row:
    """Compare with the direct connection, round by round, for each of the request's units."""
    pairs = list(zip(rounds[case, journal], rounds[case, "direct"], strict=True))
    return Row(
        case=title,
        journal=journal,
        ratio=[ours.wall_s / direct.wall_s for ours, direct in pairs],
        added_us=[(ours.wall_s - direct.wall_s) / units * MICRO for ours, direct in pairs],
        cpu_us=[(ours.cpu_s or 0.0) / units * MICRO for ours, _ in pairs],
    )


def row_of_tool_rounds(rounds: Rounds, journal: str, tool_rounds: int) -> Row:
    """Compare a tool round (a model call, a tool, its result) with the model call alone, made directly."""
    triples = zip(rounds["tools", journal], rounds["short", journal], rounds["short", "direct"], strict=True)
    ratio, added, cpu = [], [], []
    for tools, none, direct in triples:
        wall_s = (tools.wall_s - none.wall_s) / tool_rounds
        ratio.append(wall_s / direct.wall_s)
        added.append((wall_s - direct.wall_s) * MICRO)
        cpu.append(((tools.cpu_s or 0.0) - (none.cpu_s or 0.0)) / tool_rounds * MICRO)
    return Row(case="tool round", journal=journal, ratio=ratio, added_us=added, cpu_us=cpu)


def journal_ratios(rows: list[Row]) -> list[tuple[str, list[float]]]:
    """Return, for each case, what the journal multiplies the server's CPU by."""
    by_key = {(row.case, row.journal): row for row in rows}
    cases = dict.fromkeys(row.case for row in rows)
    return [
        (case, [on / off for on, off in zip(by_key[case, "on"].cpu_us, by_key[case, "off"].cpu_us, strict=True) if off])
        for case in cases
    ]


def write_table(rows: list[Row], directs: dict[str, list[float]], note: str) -> str:
    lines = [
        note,
        "",
        f"{'per':<22}{'journal':<9}{'wall, x direct':<22}{'wall added, us':<26}{'server CPU, us':<26}".rstrip(),
    ]
    for row in rows:
        cells = f"{_spread(row.ratio, 2):<22}{_spread(row.added_us, 1):<26}{_spread(row.cpu_us, 1):<26}"
        lines.append(f"{row.case:<22}{row.journal:<9}{cells}".rstrip())
    lines += ["", "journal on / off, server CPU:"]
    lines += [f"  {case:<20}{_spread(ratios, 2)}" for case, ratios in journal_ratios(rows)]
    lines += ["", "direct, for scale, us a request:"]
    lines += [f"  {case:<20}{_spread([wall_s * MICRO for wall_s in walls], 0)}" for case, walls in directs.items()]
    return "\n".join(lines)


def write_json(rows: list[Row], directs: dict[str, list[float]], note: str) -> dict:
    figures = [
        {
            "per": row.case,
            "journal": row.journal,
            "wall_ratio": _figures(row.ratio),
            "wall_added_us": _figures(row.added_us),
            "server_cpu_us": _figures(row.cpu_us),
        }
        for row in rows
    ]
    return {
        "note": note,
        "rows": figures,
        "journal_cpu_ratio": {case: _figures(ratios) for case, ratios in journal_ratios(rows)},
        "direct_us": {case: _figures([wall_s * MICRO for wall_s in walls]) for case, walls in directs.items()},
    }


def _figures(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high, "min": min(values), "max": max(values)}


def _spread(values: list[float], digits: int) -> str:
    if not values:
        return "-"
    figures = _figures(values)
    return f"{figures['median']:.{digits}f} [{figures['q1']:.{digits}f}-{figures['q3']:.{digits}f}]"
