"""The breaker: when it opens, who may try, and whose word counts."""

import hypothesis.strategies as st
from hypothesis import given

from treadle.providers.resilience.circuit_breaker import Breaker, BreakerRules, Permit

RULES = BreakerRules(calls_min=4, share=0.5, window_s=30.0, open_s=10.0, open_s_max=40.0, trials_max=1)


def taken(breaker: Breaker, now: float) -> Permit:
    """Take a permit that must be given."""
    permit = breaker.take(now)
    assert permit is not None
    return permit


def tell(breaker: Breaker, now: float, *outcomes: bool | None) -> None:
    """Make calls, one after the other."""
    for ok in outcomes:
        breaker.give_back(taken(breaker, now), now, ok=ok)


def opened() -> Breaker:
    """Return a breaker that opened at 0."""
    breaker = Breaker(RULES)
    tell(breaker, 0.0, False, False, False, False)
    return breaker


def test_it_stays_closed_below_the_least_number_of_calls():
    """One failure of one call is a share of all, and proves nothing."""
    breaker = Breaker(RULES)
    tell(breaker, 0.0, False, False, False)
    assert breaker.state(0.0) == "closed"


def test_it_opens_when_the_share_of_failures_is_reached():
    """Half of four is enough."""
    breaker = Breaker(RULES)
    tell(breaker, 0.0, True, True, False, False)
    assert breaker.state(1.0) == "open"
    assert breaker.take(9.9) is None
    assert breaker.wait_s(4.0) == 6.0


def test_it_forgets_failures_older_than_its_window():
    """What happened half a minute ago is not held against it."""
    breaker = Breaker(RULES)
    tell(breaker, 0.0, False, False, False)
    tell(breaker, 31.0, False, True, True)
    assert breaker.state(31.0) == "closed"


def test_calls_that_clients_left_say_nothing():
    """A client that goes away is not the endpoint's fault."""
    breaker = Breaker(RULES)
    tell(breaker, 0.0, *[None] * 20)
    assert breaker.state(0.0) == "closed"


def test_only_one_of_fifty_waiting_callers_tries_when_the_pause_is_over():
    """No stampede into an endpoint that may still be sick."""
    breaker = opened()
    assert sum(breaker.take(10.0) is not None for _ in range(50)) == 1
    assert breaker.state(10.0) == "half_open"


def test_a_trial_that_succeeds_closes_it():
    """One good answer is enough."""
    breaker = opened()
    breaker.give_back(taken(breaker, 10.0), 11.0, ok=True)
    assert breaker.state(11.0) == "closed"


def test_a_trial_that_fails_opens_it_for_twice_as_long_up_to_the_bound():
    """Patience grows, but not for ever."""
    breaker, now = opened(), 0.0
    for pause in (20.0, 40.0, 40.0):
        now += breaker.wait_s(now)
        breaker.give_back(taken(breaker, now), now, ok=False)
        assert breaker.wait_s(now) == pause


def test_a_trial_that_begins_to_be_answered_lets_everybody_through_at_once():
    """An answer may take minutes; nobody waits for its end."""
    breaker = opened()
    trial = taken(breaker, 10.0)
    assert breaker.is_shut(10.0)
    rest = breaker.begin(trial, 11.0)
    assert (breaker.state(11.0), breaker.is_shut(11.0)) == ("closed", False)
    tell(breaker, 11.0, False)
    breaker.give_back(rest, 12.0, ok=True)
    assert breaker.state(12.0) == "closed"
    tell(breaker, 12.0, True, False)
    assert breaker.state(12.0) == "open"


def test_a_trial_that_breaks_off_after_it_began_opens_it_again_for_longer():
    """It was no proof after all; a trial whose client left says nothing, and calls of the same time count as usual."""
    breaker = opened()
    breaker.give_back(breaker.begin(taken(breaker, 10.0), 10.0), 11.0, ok=False)
    assert breaker.wait_s(11.0) == 20.0
    breaker.give_back(breaker.begin(taken(breaker, 31.0), 31.0), 32.0, ok=None)
    assert breaker.state(32.0) == "closed"


def test_a_call_that_is_no_trial_begins_as_it_was_let_in():
    """Only a trial closes anything."""
    breaker = Breaker(RULES)
    permit = taken(breaker, 0.0)
    tell(breaker, 0.0, False, False, False, False)
    assert breaker.begin(permit, 10.0) == permit
    assert breaker.state(10.0) == "half_open"


def test_a_trial_that_its_client_left_makes_room_for_another():
    """Else it would stay half open for ever."""
    breaker = opened()
    breaker.give_back(taken(breaker, 10.0), 11.0, ok=None)
    assert breaker.state(11.0) == "half_open"
    assert breaker.take(11.0) is not None


def test_what_began_before_it_opened_is_not_heard():
    """Neither a late success nor a late failure moves it."""
    breaker = Breaker(RULES)
    early = taken(breaker, 0.0)
    tell(breaker, 0.0, False, False, False, False)
    breaker.give_back(early, 1.0, ok=True)
    assert breaker.state(1.0) == "open"
    trial = taken(breaker, 10.0)
    breaker.give_back(early, 10.0, ok=False)
    assert breaker.take(10.0) is None
    breaker.give_back(trial, 10.0, ok=True)
    assert breaker.state(10.0) == "closed"


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from(["take", "begin", "ok", "fail", "leave"])), max_size=200))
def test_there_are_never_more_trials_than_allowed_and_an_open_one_lets_nobody_in(steps):
    """Whatever happens in whatever order."""
    breaker, now, held = Breaker(RULES), 0.0, []
    answers = {"ok": True, "fail": False, "leave": None}
    for passed, act in steps:
        now += passed
        if act == "take":
            state = breaker.state(now)
            permit = breaker.take(now)
            assert state != "open" or permit is None
            if permit is not None:
                held.append(permit)
        elif act == "begin" and held:
            held.append(breaker.begin(held.pop(0), now))
        elif held:
            breaker.give_back(held.pop(0), now, ok=answers[act])
        is_open = breaker.state(now) != "closed"
        live = [permit for permit in held if is_open and permit.is_trial and permit.era == breaker._era]
        assert len(live) <= RULES.trials_max
