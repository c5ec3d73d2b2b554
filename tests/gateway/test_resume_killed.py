"""A few clients whose server is killed in the middle of their streams; `tests/chaos/test_resume.py` has hundreds."""

import asyncio
import random
from pathlib import Path

from gateway.resuming import KINDS, Paced, kill_and_resume


async def _outcomes(tmp_path: Path, paced: Paced, seed: int):
    async with paced:
        return await kill_and_resume(f"sqlite:///{tmp_path}/treadle.db", paced, KINDS, random.Random(seed))


def test_clients_of_a_killed_server_have_the_answer_once(tmp_path: Path) -> None:
    """In every protocol, though they saw more than the journal: no text twice, none left out, no id twice."""
    paced = Paced(80, 0.005)
    outcomes = [outcome for _, outcome in asyncio.run(_outcomes(tmp_path, paced, 1))]
    whole = "".join(paced.words())
    assert [(each.kind, each.whole, each.end) for each in outcomes] == [(kind, whole, "done") for kind in KINDS]
    assert not any(each.has_repeated_ids for each in outcomes)
    assert any(len(each.before) < len(whole) for each in outcomes)


def test_clients_of_a_killed_server_are_told_that_the_answer_differs(tmp_path: Path) -> None:
    """The repeated answer begins otherwise: nothing of it is joined to what they have."""
    paced = Paced(80, 0.005, differs=1)
    found = asyncio.run(_outcomes(tmp_path, paced, 2))
    other = "".join(paced.words(again=True))
    for client, outcome in found:
        match outcome.kind:
            case "events":
                assert (outcome.whole, outcome.end) == (other, "done")
            case "background":
                assert (outcome.end, client.items[-1]) == ("done", ("completed", other))
                assert [status for status, _ in client.items] == ["incomplete", "completed"]
            case "responses" if outcome.end == "done":
                assert client.items[-1] == ("completed", other)
            case _ if other.startswith(outcome.before):
                # Its model had been asked twice before the kill, so that the third answer is no other one.
                assert (outcome.whole, outcome.end) == (other, "done"), outcome.kind
            case _:
                assert (outcome.whole, outcome.end) == (outcome.before, "diverged"), outcome.kind
