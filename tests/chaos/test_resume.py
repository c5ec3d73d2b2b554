"""Streams resumed after SIGKILL, and after a frozen server lost its runs, at every token rate. `make chaos` runs them.

The counts in docs/reliability.md and docs/scale.md come from here (`-s` shows them).
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from chaos.stores import KINDS as STORES
from chaos.stores import address
from gateway.resuming import KINDS, Client, Outcome, Paced, kill_and_resume

PACES = {0.001: 400, 0.005: 200, 0.03: 60, 0.2: 12}
"""How many pieces an answer has, by the seconds between two."""
RESUMES = 100
ROUNDS = {"sqlite": (17, 1), "postgresql": (6, 3)}
"""How many servers are killed, and how many clients of each kind each has; replicas wait for a lease each time."""


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("pace_s", PACES)
@pytest.mark.parametrize("differs", [None, 3], ids=["the same answer", "another answer"])
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
    found = asyncio.run(_play("postgresql", paced, tmp_path, is_frozen=True))
    _judge("postgresql 30 ms, frozen", paced, found, None)


def _judge(name: str, paced: Paced, found: list[tuple[Client, Outcome]], differs: int | None) -> None:
    wrong = [outcome for client, outcome in found if not _is_right(paced, client, outcome, differs)]
    counts = Counter((outcome.kind, outcome.end) for _, outcome in found)
    print(f"\n{name}, {len(found)} resumes, {len(wrong)} wrong: {dict(sorted(counts.items()))}")
    assert wrong == []
    assert len(found) >= RESUMES


async def _play(store: str, paced: Paced, folder: Path, *, is_frozen: bool = False) -> list[tuple[Client, Outcome]]:
    chance = random.Random(f"{store} {paced.url}")
    rounds, each = ROUNDS[store]
    found: list[tuple[Client, Outcome]] = []
    async with paced:
        for number in range(rounds):
            place = folder / str(number)
            place.mkdir()
            is_replicated = store == "postgresql"
            found += await kill_and_resume(
                address(store, place), paced, KINDS * each, chance, is_replicated=is_replicated, is_frozen=is_frozen
            )
    return found


def _is_right(paced: Paced, client: Client, outcome: Outcome, differs: int | None) -> bool:
    whole, other = "".join(paced.words()), "".join(paced.words(again=True))
    if outcome.has_repeated_ids:
        return False
    if differs is None or outcome.had_end:
        return (outcome.whole, outcome.end) == (whole, "done")
    common = "".join(paced.words()[:differs])
    if outcome.before == common[: len(outcome.before)] or outcome.kind == "events":
        return (outcome.whole, outcome.end) == (other, "done")
    if outcome.end == "done" and outcome.kind in ("background", "responses"):
        # The journal knew as much as the client: the item is closed, and the other answer is an item of its own.
        return [status for status, _ in client.items] == ["incomplete", "completed"] and client.items[-1][1] == other
    return (outcome.whole, outcome.end) == (outcome.before, "diverged")
