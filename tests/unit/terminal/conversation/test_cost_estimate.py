"""What a turn may cost."""

from treadle.core.usage import Usage
from treadle.terminal.conversation import usage_totals as spending
from treadle.terminal.conversation.usage_totals import Spending


def price(usage: Usage) -> float:
    """Take a dollar for a token."""
    return float(usage.output_tokens)


def test_finished_rounds_count_what_they_cost() -> None:
    """Up to the limit is allowed, more is not."""
    spent = Spending(2.0)
    assert not spent.settle(2.0)
    assert spent.settle(2.5)


def test_a_round_that_streams_counts_by_its_length() -> None:
    """A single long answer can not spend everything before anybody looks."""
    spent = Spending(100.0)
    text = "x" * spending.ASKED_EVERY_BYTES
    assert not spent.add(text, price)  # 64 tokens
    assert spent.add(text, price)  # 128 tokens


def test_what_is_settled_is_not_counted_again() -> None:
    """The guess is forgotten once the price of the round is known, and the next one comes on top of it."""
    spent = Spending(100.0)
    text = "x" * spending.ASKED_EVERY_BYTES
    assert not spent.add(text, price)
    assert not spent.settle(30.0)
    assert not spent.add(text, price)  # 30 + 64
    assert spent.add(text, price)


def test_it_is_not_priced_for_every_letter() -> None:
    """A token at a time costs nothing to watch."""
    spent, asked = Spending(1e9), list[Usage]()
    for _ in range(1000):
        spent.add("x", lambda usage: asked.append(usage))  # type: ignore[func-returns-value]
    assert len(asked) == 1000 // spending.ASKED_EVERY_BYTES


def test_without_a_price_or_a_limit_nothing_is_stopped() -> None:
    """What is not known can not be limited."""
    assert not Spending(0.1).add("x" * 10_000, lambda _: None)
    assert not Spending(None).settle(1e9)
    assert not Spending(None).is_limited
