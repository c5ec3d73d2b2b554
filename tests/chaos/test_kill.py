"""Real processes, killed and frozen without warning. `make chaos` runs them."""

import time
from pathlib import Path

import pytest

from chaos.server import Server, prepare, servers
from chaos.stores import KINDS, address, violations

TAKEOVER_S = 17.0
"""A lease of 15 s, and 2 s to notice."""
SLACK_S = 13.0
"""A heartbeat comes every 5 s, and machines that run tests are busy."""
PROMPTS = [f"Please pay the amount {n}" if n % 2 else f"Please upsert the amount {n}" for n in range(1, 9)]


def effects(folder: Path) -> list[str]:
    """Return the lines of the ledger that are whole."""
    text = (folder / "ledger").read_text() if (folder / "ledger").exists() else ""
    return text.split("\n")[:-1]


def ends(server: Server, run_id: str) -> dict:
    """Follow a run to its end and return that."""
    told = list(server.stream("GET", f"/treadle/v1/runs/{run_id}/events"))
    assert told[-1]["type"] == "run.ended", told[-1:]
    return told[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pause_s", [0.0, 60.0], ids=["anywhere", "in the tools"])
def test_another_worker_goes_on_after_a_kill(kind: str, pause_s: float, tmp_path: Path):
    """SIGKILL with eight runs going on: the other worker ends all of them, and no promise is broken."""
    prepare(tmp_path, pause_s)
    store = address(kind, tmp_path)
    with servers(tmp_path, store, 2) as (first, second):
        begun = [first.begin(prompt) for prompt in PROMPTS]
        if pause_s:
            while len(effects(tmp_path)) < 4:
                assert first.is_alive
        first.kill()
        (tmp_path / "pause").write_text("0")
        killed = time.monotonic()
        ended = [ends(second, run_id) for run_id, _ in begun]
        took_s = time.monotonic() - killed
    assert [end["status"] for end in ended] == ["completed"] * len(PROMPTS)
    assert took_s < TAKEOVER_S + SLACK_S
    assert violations(store, tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_worker_writes_nothing_when_it_wakes(kind: str, tmp_path: Path):
    """SIGSTOP for longer than a lease, take-over, SIGCONT: the old owner's writes are refused, and it still serves."""
    prepare(tmp_path, 1.0)
    store = address(kind, tmp_path)
    with servers(tmp_path, store, 2) as (first, second):
        begun = [first.begin(prompt) for prompt in PROMPTS]
        first.freeze()
        ended = [ends(second, run_id) for run_id, _ in begun]
        first.thaw()
        again, _ = first.begin("Please pay the amount 99")
        assert ends(first, again)["status"] == "completed"
        assert first.is_alive
    assert [end["status"] for end in ended] == ["completed"] * len(PROMPTS)
    assert violations(store, tmp_path) == []


def test_a_payment_is_never_made_twice(tmp_path: Path):
    """Killed while a tool with effects runs: after a restart its call is unknown, never run again, and the run ends."""
    prepare(tmp_path, 60.0)
    store = address("sqlite", tmp_path)
    with servers(tmp_path, store, 1) as [first]:
        run_id, events = first.begin("Please pay the amount 42")
        assert any(event["type"] == "tool.started" for event in events)
        while not effects(tmp_path):
            assert first.is_alive
    with servers(tmp_path, store, 1) as [second]:
        told = list(second.stream("GET", f"/treadle/v1/runs/{run_id}/events"))
    results = [event["result"]["rc"] for event in told if event["type"] == "tool.finished"]
    assert results == ["interrupted"]
    assert told[-1]["status"] == "completed"
    assert len(effects(tmp_path)) == 1
    assert violations(store, tmp_path) == []
