"""A worker whose wall clock jumps, by libfaketime: leases, numbers and limits do not mind."""

import asyncio
import time
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from chaos.server import Server, prepare, servers
from chaos.stores import address, rows, violations
from chaos.test_kill import PROMPTS, ends
from treadle.journal.open_store import open_store

DAY_S, HOUR_S, SLACK_S = 86_400, 3_600, 120


def library() -> str:
    """Return the library that lies about the time; skip the test, saying why, where there is none."""
    found = find_spec("libfaketime")
    place = Path(found.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1" if found else None
    if place is None or not place.exists():
        pytest.skip("libfaketime is not installed: pip install libfaketime")
    return str(place)


@pytest.mark.parametrize("jump_s", [-HOUR_S, DAY_S], ids=["an hour back", "a day ahead"])
def test_a_clock_that_jumps_changes_no_owner_and_no_order(jump_s: int, tmp_path: Path) -> None:
    """Runs go on at both servers; neither takes what the other holds, and every journal stays in order."""
    prepare(tmp_path, 2.0)
    clock = tmp_path / "clock"
    clock.write_text("+0s")
    env = {
        "LD_PRELOAD": library(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "TREADLE_RATES__REQUESTS_PER_MIN": "600",
    }
    store = address("postgresql", tmp_path)
    with servers(tmp_path, store, 1) as [right], servers(tmp_path, store, 1, env=env) as [wrong]:
        begun = [server.begin(prompt)[0] for prompt in PROMPTS for server in (wrong, right)]
        clock.write_text(f"{jump_s:+d}s")
        is_off_by(wrong, jump_s)
        assert [ends(right, run_id)["status"] for run_id in begun] == ["completed"] * len(begun)
        again = [ends(server, server.begin("Please pay the amount 99")[0])["status"] for server in (wrong, right)]
        assert again == ["completed"] * 2
        assert owners(store) == {1}, "nobody took over what somebody else held"
    assert violations(store, tmp_path) == []


def is_off_by(server: Server, jump_s: int) -> None:
    """Make sure that the server's machine really has another time, and that the server does not go by it."""
    lines = server.ask("GET", "/metrics")[1].decode().splitlines()
    [skew_s] = [float(line.split()[1]) for line in lines if line.startswith("treadle_clock_skew_seconds ")]
    assert abs(skew_s - jump_s) < SLACK_S, skew_s
    run_id, _ = server.begin("Please pay the amount 1")
    made = msgspec.json.decode(server.ask("GET", f"/treadle/v1/runs/{run_id}")[1])["created_at"]
    assert abs(made - time.time()) < SLACK_S, made


def owners(store: str) -> set[int]:
    """Return the epochs that wrote to any run."""

    async def read() -> set[int]:
        opened = open_store(store)
        await opened.open()
        try:
            found = [await opened.audit(row.id) for row in await opened.list_runs(limit=1_000)]
        finally:
            await opened.close()
        return {line.epoch for lines in found for line in lines}

    assert rows(store)
    return asyncio.run(read())
