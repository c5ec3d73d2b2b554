"""Sliding windows: how much passes in a while, and what is left."""

import hypothesis.strategies as st
from hypothesis import given

from treadle.access.sliding_window import SlidingWindow


class Timer:
    """Time that is set."""

    time = 0.0

    def __call__(self) -> float:
        return self.time


def test_as_much_passes_as_the_limit_says_and_then_nothing():
    """What is refused does not count."""
    rates = SlidingWindow(Timer())
    hits = [rates.take("a", 3, 60.0) for _ in range(5)]
    assert [hit.allowed for hit in hits] == [True, True, True, False, False]
    assert [hit.remaining for hit in hits] == [2, 1, 0, 0, 0]
    assert hits[-1].reset_s == 60.0


def test_names_do_not_share_a_window():
    """Each key, address and route has its own."""
    rates = SlidingWindow(Timer())
    assert rates.take("a", 1, 60.0).allowed
    assert rates.take("b", 1, 60.0).allowed
    assert not rates.take("a", 1, 60.0).allowed


def test_the_last_minute_fades_and_the_one_before_it_is_forgotten():
    """Half a minute on, half of it counts."""
    timer = Timer()
    rates = SlidingWindow(timer)
    for _ in range(10):
        rates.take("a", 10, 60.0)
    timer.time = 90.0
    assert sum(rates.take("a", 10, 60.0).allowed for _ in range(10)) == 5
    timer.time = 240.0
    assert sum(rates.take("a", 10, 60.0).allowed for _ in range(20)) == 10


def test_tokens_are_counted_when_they_are_known_and_asked_for_before():
    """A cost of nothing asks whether anything is left."""
    rates = SlidingWindow(Timer())
    assert rates.take("a", 100, 60.0, cost=0).allowed
    rates.add("a", 60.0, 150)
    assert not rates.take("a", 100, 60.0, cost=0).allowed
    assert rates.take("a", 100, 60.0, cost=0).remaining == 0


@given(
    st.lists(st.tuples(st.floats(0, 90), st.integers(1, 30)), min_size=1, max_size=40),
    st.integers(1, 20),
    st.sampled_from([0, 1]),
)
def test_who_is_refused_is_let_through_when_told_to_come_back(steps, limit, cost):
    """However much was counted before, and not long before that: a client that obeys is refused once."""
    timer = Timer()
    rates = SlidingWindow(timer)
    for pause, done in steps:
        timer.time += pause
        rates.add("a", 60.0, done)
        hit = rates.take("a", limit, 60.0, cost)
        if hit.allowed:
            continue
        assert 0 <= hit.reset_s <= 60.0
        refused_at = timer.time
        if hit.reset_s > 1e-3:
            timer.time = refused_at + hit.reset_s - 1e-3
            assert not rates.take("a", limit, 60.0, cost=0).allowed
        timer.time = refused_at + hit.reset_s + 1e-6
        assert rates.take("a", limit, 60.0, cost).allowed


def test_a_lone_request_a_minute_passes_each_minute():
    """What is left of one request of the last minute is none."""
    timer = Timer()
    rates = SlidingWindow(timer)
    timer.time = 30.0
    assert rates.take("a", 1, 60.0).allowed
    assert rates.take("a", 1, 60.0).reset_s == 30.0
    timer.time = 61.0
    assert rates.take("a", 1, 60.0).allowed


def test_what_was_not_asked_for_longest_is_forgotten_first():
    """Memory is bounded, whoever knocks."""
    rates = SlidingWindow(Timer(), names_max=2)
    rates.take("a", 1, 60.0)
    rates.take("b", 1, 60.0)
    rates.take("a", 1, 60.0)
    rates.take("c", 1, 60.0)
    assert not rates.take("a", 1, 60.0).allowed
    assert rates.take("b", 1, 60.0).allowed


@given(st.lists(st.floats(0, 50), min_size=1, max_size=200), st.integers(1, 20))
def test_no_aligned_minute_lets_more_through_than_the_limit(pauses, limit):
    """And no sixty seconds more than twice of it."""
    timer = Timer()
    rates = SlidingWindow(timer)
    passed: list[float] = []
    for pause in pauses:
        timer.time += pause
        if rates.take("a", limit, 60.0).allowed:
            passed.append(timer.time)
    for minute in {int(time // 60) for time in passed}:
        assert sum(int(time // 60) == minute for time in passed) <= limit
    for begin in passed:
        assert sum(begin <= time < begin + 60.0 for time in passed) <= 2 * limit
