"""Damaged answers run and deliver nothing that was not meant: through the engine, to clients of every protocol."""

import random

import pytest

from stream.damage import Recorded, byte_damages, frame_damages, recorded
from stream.damage_runs import CLIENTS, delivered, executed

SEED = 27
BYTES = 40
"""How many places of each answer are damaged here; `make fuzz` tries all of them, again and again."""

ANSWERS = pytest.mark.parametrize(
    "answer", [each for each in recorded() if each.calls], ids=lambda each: f"{each.protocol}-{each.name}"
)


def _damages(answer: Recorded):  # type: ignore[no-untyped-def]
    dice = random.Random(SEED)
    places = sorted(dice.sample(range(len(answer.body)), BYTES))
    return [*frame_damages(answer.body, dice), *byte_damages(answer.body, places, dice)]


@ANSWERS
def test_no_call_of_a_damaged_answer_runs_otherwise_than_it_was_meant(answer: Recorded) -> None:
    """A read may begin before the answer has ended, and a write waits for its end: both had their own arguments."""
    found = [(each.kind, each.place, what) for each in _damages(answer) if (what := executed(answer, each, 64))]
    assert found == []


@ANSWERS
@pytest.mark.parametrize("client", CLIENTS)
def test_no_client_gets_a_call_that_was_not_meant(answer: Recorded, client: str) -> None:
    """Streamed and whole, and in the journal: a call that is said to be done is one that was meant."""
    damages = _damages(answer)[sorted(CLIENTS).index(client) :: 4]
    found = [(each.kind, each.place, what) for each in damages if (what := delivered(answer, each, 64, client))]
    assert found == []
