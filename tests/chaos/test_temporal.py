"""Runs in the background that Temporal places, with a real server: killed, handed over, cancelled, and left alone."""

import asyncio
import time
from pathlib import Path

import msgspec

from chaos.server import Server, prepare, servers
from chaos.stores import address, rows, violations
from chaos.temporal import cancel, states, temporal
from chaos.test_kill import effects
from treadle.core.events import ENDED

BOUND_S = 60.0


def ended(server: Server, response_id: str) -> str:
    """Wait for the end of a run in the background and return how it ended."""
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        status, body = server.ask("GET", f"/v1/responses/{response_id}")
        assert status == 200, body
        state = msgspec.json.decode(body)["status"]
        if state not in ("queued", "in_progress"):
            return state
        time.sleep(0.1)
    raise AssertionError(f"{response_id} did not end")


def test_another_process_finishes_what_a_killed_one_was_given(tmp_path: Path) -> None:
    """Two processes, SIGKILL of one while its tools run: Temporal gives the runs to the other, effects stay at one."""
    prepare(tmp_path, 12.0)
    store = address("postgresql", tmp_path)
    with temporal(tmp_path) as env, servers(tmp_path, store, 2, env=env) as both:
        ids = [both[n % 2].background(f"Please pay the amount {n}") for n in range(6)]
        deadline = time.monotonic() + BOUND_S
        while len(effects(tmp_path)) < 6:
            assert time.monotonic() < deadline, "Temporal gave nobody the runs"
            time.sleep(0.05)
        both[0].kill()
        (tmp_path / "pause").write_text("0")
        assert [ended(both[1], each) for each in ids] == ["completed"] * 6
        assert len(effects(tmp_path)) == 6
        known = asyncio.run(states(env["TREADLE_RUNNER__TEMPORAL"]))
        assert len(known) == 6
    assert violations(store, tmp_path) == []


def test_a_process_that_leaves_hands_its_runs_over(tmp_path: Path) -> None:
    """SIGTERM while a tool runs: the process ends with 0, and the other goes on without waiting for a lease."""
    prepare(tmp_path, 30.0)
    store = address("postgresql", tmp_path)
    with temporal(tmp_path) as env, servers(tmp_path, store, 1, env=env) as [first]:
        response = first.background("Please upsert the amount 5")
        deadline = time.monotonic() + BOUND_S
        while not effects(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (tmp_path / "pause").write_text("0")
        with servers(tmp_path, store, 1, env=env) as [second]:
            assert first.leave() == 0
            assert ended(second, response) == "completed"
    assert violations(store, tmp_path) == []


def test_a_workflow_that_is_cancelled_cancels_its_run(tmp_path: Path) -> None:
    """Whoever works with Temporal's own tools stops a run there."""
    prepare(tmp_path, 60.0)
    store = address("sqlite", tmp_path)
    with temporal(tmp_path) as env, servers(tmp_path, store, 1, env=env) as [server]:
        response = server.background("Please pay the amount 5")
        deadline = time.monotonic() + BOUND_S
        while not effects(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        where = env["TREADLE_RUNNER__TEMPORAL"]
        [workflow] = asyncio.run(states(where))
        asyncio.run(cancel(where, workflow))
        assert ended(server, response) == "cancelled"
    assert violations(store, tmp_path) == []


def test_a_run_is_driven_here_while_temporal_is_away(tmp_path: Path) -> None:
    """What cannot be placed is not lost and does not wait: the process that took it in drives it."""
    prepare(tmp_path, 0.0)
    store = address("sqlite", tmp_path)
    with temporal(tmp_path) as env:
        server = Server(tmp_path, store, env=env)
        server.open()
    try:
        response = server.background("Please pay the amount 5")
        assert ended(server, response) == "completed"
        assert [row.status in ENDED for row in rows(store)] == [True]
    finally:
        server.kill()
    assert violations(store, tmp_path) == []
