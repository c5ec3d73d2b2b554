"""What was used: unknown is never nothing."""

import pytest

from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage
from treadle.terminal.conversation.usage_totals import Totals, cost_text, time_text, tokens_text, usage_of


def test_turns_are_summed_and_timed() -> None:
    """Tokens, cost and the last time; a turn without a price makes the sum incomplete."""
    now = [0.0]
    totals = Totals(lambda: now[0])
    for cost, seconds in ((0.5, 2.0), (None, 3.0)):
        totals.begin()
        now[0] += seconds
        assert totals.seconds == seconds
        totals.end(RunEnded(status="completed", calls=2, usage=Usage(input_tokens=3, output_tokens=1)), cost)
    assert (totals.turns, totals.calls, totals.cost, totals.has_unpriced) == (2, 4, 0.5, True)
    assert totals.usage == Usage(input_tokens=6, output_tokens=2)
    assert totals.seconds == 3.0


def test_a_turn_without_an_end_counts_only_its_time() -> None:
    """It could not start."""
    totals = Totals(lambda: 1.0)
    totals.begin()
    totals.end(None, None)
    assert (totals.turns, totals.usage, totals.cost) == (0, None, None)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (tokens_text(None), "tokens unknown"),
        (tokens_text(Usage(input_tokens=12, output_tokens=3)), "15 tokens"),
        (tokens_text(Usage(input_tokens=12_345, estimated=True)), "~12.3k tokens"),
        (cost_text(None), "cost unknown"),
        (cost_text(0.0), "$0.0000"),
        (cost_text(1.234), "$1.23"),
        (time_text(0.0456), "46 ms"),
        (time_text(12.34), "12.3 s"),
    ],
)
def test_numbers_are_said_in_a_few_characters(shown: str, wanted: str) -> None:
    """An estimate says that it is one."""
    assert shown == wanted


def test_the_usage_of_a_run_that_goes_on_is_in_its_journal() -> None:
    """Each reply says what it used."""
    import msgspec

    replies = [Entry(kind="reply", at=0.0, data=msgspec.Raw(b'{"usage":{"input_tokens":5}}'))] * 2
    assert usage_of([*replies, Entry(kind="user", at=0.0, content="x")]) == Usage(input_tokens=10)
    assert usage_of([]) is None
