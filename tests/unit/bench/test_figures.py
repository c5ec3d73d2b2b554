"""What is printed is what was measured: medians and spread, growth, tables, plots, and their place in the document."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.report import ahead, document, goals, results
from bench.report.figures import Spread, Table, exponent, ratio, spread
from bench.report.machine import describe
from bench.report.plot import bars, curves

SVG = "{http://www.w3.org/2000/svg}"


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    """One odd round does not move it."""
    assert spread([1.0, 2.0, 3.0, 4.0, 100.0]) == Spread(3.0, 2.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)
    assert f"{spread([1.0, 2.0, 3.0]).times(10):.0f}" == "20 [15–25]"


def test_ratios_are_taken_round_by_round() -> None:
    """A round in which the whole machine was slow changes nothing."""
    assert ratio([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 2.0)
    assert ratio([1.0], [0.0]) == Spread(0.0, 0.0, 0.0)


@pytest.mark.parametrize(("power", "base"), [(1.0, 0.0), (1.0, 50.0), (2.0, 5.0), (0.5, 1.0)])
def test_the_exponent_of_a_curve_is_found_above_its_fixed_cost(power: float, base: float) -> None:
    """Linear with a large fixed cost is linear, and not better."""
    points = [(float(n), base + 0.01 * (n - 1) ** power) for n in (1, 10, 100, 1000)]
    assert exponent(points) == pytest.approx(power, abs=0.01)


def test_a_curve_that_does_not_grow_has_no_exponent() -> None:
    """Noise below the first point is no growth."""
    assert exponent([(1.0, 5.0), (10.0, 4.0), (100.0, 4.5)]) == 0.0


def test_a_table_lines_up_in_a_terminal_and_is_markdown_in_a_document() -> None:
    """The same words in both."""
    table = Table("Title", ["name", "µs"], [["a", "1"], ["longer", "1,000"]])
    assert table.text() == "Title\n  name       µs\n  a           1\n  longer  1,000"
    assert table.markdown() == "Title:\n\n| name | µs |\n|---|---:|\n| a | 1 |\n| longer | 1,000 |"


def test_curves_are_drawn_where_they_belong() -> None:
    """Every point is in the picture, and linear growth is a straight line."""
    root = ElementTree.fromstring(
        curves("A & B", "how <many>", "ms", {"a": [(1, 1), (10, 10), (100, 100)], "b": [(1, 5)]})
    )
    circles = [(float(each.get("cx")), float(each.get("cy"))) for each in root.iter(f"{SVG}circle")]
    assert len(circles) == 4
    (x1, y1), (x2, y2), (x3, y3) = circles[:3]
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert "how <many>" in [each.text for each in root.iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_figures_say() -> None:
    """On a logarithmic scale each power of ten takes the same room."""
    root = ElementTree.fromstring(bars("Rate", "a second", {"x": 1000.0, "y": 100.0, "z": 10.0}))
    widths = [float(each.get("width")) for each in root.iter(f"{SVG}rect")][1:]
    assert widths[0] - widths[1] == pytest.approx(widths[1] - widths[2], abs=0.2)


def test_results_survive_being_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is written from what was kept, perhaps on another day."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = results.Result(
        "plain", "note", [Table("T", ["a"], [["b"]])], [results.Plot("n", "alt", "<svg/>")], {"x": 1}
    )
    kept, machine, _ = results.read(results.keep(result, "2 cores"))
    assert (kept, machine) == (result, "2 cores")


def test_a_result_takes_its_place_in_the_document() -> None:
    """What stood there goes, everything else stays, and writing twice changes nothing."""
    text = "before\n<!-- measured: plain -->\nold\n<!-- end: plain -->\nafter\n<!-- measured: x -->\n<!-- end: x -->\n"
    assert document.marks(text) == ["plain", "x"]
    new = document.put(text, "plain", r"new \1")
    assert new == text.replace("old", r"new \1")
    assert document.put(new, "plain", r"new \1") == new
    with pytest.raises(ValueError, match="no place for 'other'"):
        document.put(text, "other", "words")


def test_the_machine_is_described_and_not_named() -> None:
    """Cores, kernel, Python and the day; no host."""
    import platform

    words = describe()
    assert "cores" in words
    assert platform.python_version() in words
    assert not platform.node() or platform.node() not in words


def test_goals_are_judged_by_what_was_measured() -> None:
    """Reached, only the gate, or missed; a peer that was left out leaves its goal out."""
    rows = {
        "direct": [{"cpu_s": 0.0, "p50_s": 1.0, "p99_s": 1.0}],
        "Treadle, SQLite": [{"cpu_s": 1.0, "p50_s": 2.0, "p99_s": 11.0}],
        "LiteLLM": [{"cpu_s": 100.0, "p50_s": 31.0, "p99_s": 41.0}],
        "nginx": [{"cpu_s": 0.1, "p50_s": 1.5, "p99_s": 2.0}],
    }
    told = {row[0]: (row[1], row[4]) for row in goals.table({"plain-peers": rows}).rows}
    assert told == {
        "plain requests of a core, × LiteLLM": ("100", "gate"),
        "plain requests of a core, × nginx": ("0.1", "missed"),
        "added latency p50, × nginx": ("2", "goal"),
        "added latency p99, × nginx": ("10", "missed"),
        "added latency p50, × LiteLLM": ("0.0333", "goal"),
        "added latency p99, × LiteLLM": ("0.25", "missed"),
    }


@pytest.mark.parametrize(
    ("own_s", "row"),
    [
        (0.0040, ["3", "≤ 10", "≤ 3.5", "goal"]),
        (0.0110, ["10", "≤ 10", "≤ 3.5", "gate"]),
        (0.0210, ["20", "≤ 10", "≤ 3.5", "missed"]),
    ],
)
def test_a_paced_event_is_judged_by_half_of_the_pace_and_by_nginx(own_s: float, row: list[str]) -> None:
    """Over what a direct connection takes; the goal is what nginx adds and two milliseconds."""
    found = {"direct chat": 0.001, "nginx chat": 0.0025, "Treadle, SQLite chat": own_s}
    paced = {name: [{"cpu_s": 1.0, "p99_s": seconds}] for name, seconds in found.items()}
    rows = {name: rest for name, *rest in goals.table({"streams-peers": {"paced": paced, "bursts": {}}}).rows}
    assert rows["a paced event late p99, ms over direct; goal: nginx + 2"] == row


def test_durable_appends_are_judged_beside_the_plain_use_of_a_driver() -> None:
    """Each engine by itself, with 64 writers; what is not there is left out."""
    figures = {
        "journal": {"SQLite 64": [{"a_second": 90.0}], "PostgreSQL 64": [{"a_second": 60.0}]},
        "plain": {"SQLite 64": [{"a_second": 10.0}], "PostgreSQL 64": [{"a_second": 5.0}]},
    }
    assert [row[1:] for row in goals.table({"journal": figures}).rows] == [
        ["9", "≥ 8", "≥ 15", "gate"],
        ["12", "≥ 5", "≥ 10", "goal"],
    ]
    assert goals.table({"plain-peers": {}}).rows == []


def test_whoever_is_ahead_is_named() -> None:
    """By how much, the furthest first; a draw is not ahead."""
    rows = {
        "direct": [{"cpu_s": 0.0, "p50_s": 1.0}],
        "Treadle, SQLite": [{"cpu_s": 1.0, "p50_s": 3.0}],
        "near": [{"cpu_s": 0.97, "p50_s": 5.0}],
        "better": [{"cpu_s": 0.5, "p50_s": 4.0}],
        "best": [{"cpu_s": 0.1, "p50_s": 4.0}],
    }
    assert ahead.table({"plain-peers": rows}).rows == [
        ["CPU of a plain request", "best ×0.1, better ×0.5"],
        ["added latency p50", "nobody"],
    ]
