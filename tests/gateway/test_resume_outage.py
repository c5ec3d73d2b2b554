"""Clients whose server cannot write to its journal for a while; `tests/chaos/test_resume.py` has hundreds."""

import asyncio
import random
from pathlib import Path

import pytest

from gateway.outages import locked_file
from gateway.resuming import KINDS, Outcome, Paced, break_and_resume


async def _outcomes(folder: Path, paced: Paced) -> list[Outcome]:
    async with paced, locked_file(folder) as (stores, outage):
        return [outcome for _, outcome in await break_and_resume(stores, paced, KINDS, random.Random(1), outage)]


@pytest.mark.slow
def test_clients_of_a_locked_journal_have_the_answer_once(tmp_path: Path) -> None:
    """Another program writes and does not end: the streams end in an error, and go on when the lock is gone."""
    paced = Paced(60, 0.02)
    whole = "".join(paced.words())
    outcomes = asyncio.run(_outcomes(tmp_path, paced))
    assert [(each.kind, each.whole, each.end) for each in outcomes] == [(kind, whole, "done") for kind in KINDS]
    assert not any(each.has_repeated_ids or each.had_end for each in outcomes)
