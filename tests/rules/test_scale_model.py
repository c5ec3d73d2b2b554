"""The model behind docs/scale.md: it adds up, it is the same every time, and the document says what it says."""

import pytest
from bench.scale_model import LOADS, Costs, Load, capacity, rows, simulate, steps_of

from rules.tree import ROOT

SHORT = LOADS[2]
FREE = Costs(run_cpu_s=0.02, commit_s=0.0, entry_s=0.0)


def test_an_idle_process_adds_its_own_work_and_its_commits() -> None:
    """Without others there is no queue."""
    costs = Costs(run_cpu_s=0.002, event_cpu_s=0.0001, commit_s=0.001, entry_s=0.0005)
    seen = simulate(costs, Load("one", 0, 10, 0.2, 0.2, 0.0), 1, 0.01)
    assert seen.added_p50_s == pytest.approx(0.002 + 10 * 0.0001 + 2 * 0.0015)


def test_what_cores_do_is_what_runs_cost() -> None:
    """Busy cores are the rate times the work of a run."""
    cpu_s = sum(seconds for kind, seconds in steps_of(SHORT, FREE) if kind == "cpu")
    seen = simulate(FREE, SHORT, 2, 60.0)
    assert seen.cpu_share == pytest.approx(60.0 * cpu_s / 2, rel=0.1)
    assert seen.db_share == 0.0


def test_processes_add_up_until_the_database_is_full() -> None:
    """With a free database in proportion; with a slow one never beyond what it takes."""
    one, _ = capacity(FREE, SHORT, 1)
    four, _ = capacity(FREE, SHORT, 4)
    assert four == pytest.approx(4 * one, rel=0.1)
    slow = Costs(entry_s=0.01)
    rate, seen = capacity(slow, SHORT, 8)
    assert rate <= 0.95 / (2 * slow.entry_s)
    assert seen.cpu_share < 0.5


def test_the_same_seed_sees_the_same() -> None:
    """So a table can be computed again."""
    assert simulate(Costs(), SHORT, 2, 100.0) == simulate(Costs(), SHORT, 2, 100.0)
    assert simulate(Costs(), SHORT, 2, 100.0) != simulate(Costs(), SHORT, 2, 100.0, seed=2)


def test_the_document_shows_what_the_model_says() -> None:
    """The rows for one process, computed again."""
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    missing = [row for row in rows(Costs(), (1,)) if f"| {' | '.join(row)} |" not in text]
    assert missing == []
    assert "figures of a model" in text
