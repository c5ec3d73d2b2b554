"""Streams resumed after SIGKILL, and after a server lost its runs or its store, at every token rate. For `make chaos`.

The counts in docs/reliability.md and docs/scale.md come from here (`-s` shows them).
"""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chaos.stores import KINDS as STORES
from chaos.stores import address
from gateway.outages import DISKS, OUTAGES, Outage
from gateway.resuming import KINDS, Client, Fault, Frozen, Outcome, Paced, break_and_resume
from places import on_small_disk

PACES = {0.001: 400, 0.005: 200, 0.03: 60, 0.2: 12}
"""How many pieces an answer has, by the seconds between two."""
RESUMES = 100
DIFFERS = [pytest.param(None, id="the same answer"), pytest.param(3, id="another answer")]
ENOUGH = 17
WAITED_S = 15.0
"""How long a stream may go on after the last word: 10 s for a store that is away, the rest for a busy machine."""
UNHURRIED = ("a locked file",)
"""Outages in which SQLite itself waits, for one write after the other."""
TESTS = Path(__file__).parents[1]
ROUNDS = {"sqlite": (17, 1), "postgresql": (6, 3)}
"""How many servers are killed, and how many clients of each kind each has; replicas wait for a lease each time."""


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("pace_s", PACES)
@pytest.mark.parametrize("differs", DIFFERS)
def test_every_client_of_a_killed_server_resumes(
    store: str, pace_s: float, differs: int | None, tmp_path: Path
) -> None:
    """Each has the answer exactly once; where the repeated answer is another one, each is told."""
    paced = Paced(PACES[pace_s], pace_s, differs=differs)
    found = asyncio.run(_play(store, paced, tmp_path))
    _judge(f"{store} {pace_s * 1000:g} ms", paced, found, differs)


def test_every_client_of_a_server_that_lost_its_leases_resumes(tmp_path: Path) -> None:
    """It is frozen for longer than they last; another one goes on, and the clients with it."""
    paced = Paced(PACES[0.03], 0.03)
    found = asyncio.run(_play("postgresql", paced, tmp_path, Frozen()))
    _judge("postgresql 30 ms, frozen", paced, found, None)


@pytest.mark.parametrize("name", OUTAGES)
@pytest.mark.parametrize("pace_s", PACES)
@pytest.mark.parametrize("differs", DIFFERS)
def test_every_client_of_a_server_that_lost_its_store_resumes(
    name: str, pace_s: float, differs: int | None, tmp_path: Path
) -> None:
    """It waits, loses its runs and ends their streams; when the store is back, the runs go on, and the clients."""
    asyncio.run(outlive(name, OUTAGES[name], pace_s, differs, tmp_path))


@pytest.mark.parametrize("store", DISKS)
@pytest.mark.parametrize("pace_s", PACES)
@pytest.mark.parametrize("differs", DIFFERS)
def test_every_client_of_a_server_with_a_full_disk_resumes(
    store: str, pace_s: float, differs: int | None, tmp_path: Path
) -> None:
    """The same with a disk that is filled while the answers come, and then freed."""
    small = on_small_disk(store)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)  # PostgreSQL's user has to reach the disk
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*small, sys.executable, "-m", "chaos.full_resume", store, str(pace_s), str(differs or 0), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    print(done.stdout)


async def outlive(name: str, outage: Outage, pace_s: float, differs: int | None, folder: Path) -> None:
    """Let many clients read when the store goes away, and judge what each has in the end."""
    count = PACES[pace_s]
    async with Paced(count, pace_s, differs=differs) as paced, outage(folder) as (stores, fault):
        chance, spread_s = random.Random(f"{name} {pace_s}"), min(2.0, count * pace_s / 2)
        found = await break_and_resume(stores, paced, KINDS * ENOUGH, chance, fault, spread_s=spread_s)
    _judge(f"{name} {pace_s * 1000:g} ms", paced, found, differs)
    if name not in UNHURRIED:
        assert max(outcome.waited_s for _, outcome in found) < WAITED_S, "a stream ended late"


def _judge(
    name: str, paced: Paced, found: list[tuple[Client, Outcome]], differs: int | None, least: int = RESUMES
) -> None:
    wrong = [outcome for client, outcome in found if not _is_right(paced, client, outcome, differs)]
    counts = Counter((outcome.kind, outcome.end) for _, outcome in found)
    print(f"\n{name}, {len(found)} resumes, {len(wrong)} wrong: {dict(sorted(counts.items()))}")
    waited_s = sorted(outcome.waited_s for _, outcome in found)
    print(f"streams waited {waited_s[len(waited_s) // 2]:.1f} s (median), {waited_s[-1]:.1f} s (longest)")
    assert wrong == [], wrong[:3]
    assert len(found) >= least


async def _play(store: str, paced: Paced, folder: Path, fault: Fault | None = None) -> list[tuple[Client, Outcome]]:
    chance = random.Random(f"{store} {paced.url}")
    rounds, each = ROUNDS[store]
    found: list[tuple[Client, Outcome]] = []
    async with paced:
        for number in range(rounds):
            place = folder / str(number)
            place.mkdir()
            stores = [address(store, place)] * (2 if store == "postgresql" else 1)
            found += await break_and_resume(stores, paced, KINDS * each, chance, fault or Fault())
    return found


def _is_right(paced: Paced, client: Client, outcome: Outcome, differs: int | None) -> bool:
    whole, other = "".join(paced.words()), "".join(paced.words(again=True))
    if outcome.has_repeated_ids:
        return False
    if differs is None or outcome.had_end or paced.times(client.name) == 1:
        # One that was asked once had been stored whole, though its client had not heard the end.
        return (outcome.whole, outcome.end) == (whole, "done")
    common = "".join(paced.words()[:differs])
    if outcome.before == common[: len(outcome.before)] or outcome.kind == "events":
        return (outcome.whole, outcome.end) == (other, "done")
    if outcome.end == "done" and outcome.kind in ("background", "responses"):
        # The journal knew as much as the client: the item is closed, and the other answer is an item of its own.
        return [status for status, _ in client.items] == ["incomplete", "completed"] and client.items[-1][1] == other
    return (outcome.whole, outcome.end) == (outcome.before, "diverged")
