"""Everything is measured in turns, and what breaks is told and never counted."""

import pytest
from bench.rig.targets import Broken
from bench.rig.turns import in_turns


def counted(calls: list[str], name: str):
    """A work that says that it was done."""

    def work() -> int:
        calls.append(name)
        return len(calls)

    return work


def test_every_round_visits_everything_once_after_one_that_does_not_count() -> None:
    """In an order that the seed decides."""
    calls: list[str] = []
    seen, words = in_turns({name: counted(calls, name) for name in "abc"}, 4, seed=1)
    assert words == []
    assert {name: len(found) for name, found in seen.items()} == {"a": 4, "b": 4, "c": 4}
    rounds = [calls[at : at + 3] for at in range(0, len(calls), 3)]
    assert len(rounds) == 5
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert min(min(found) for found in seen.values()) > 3


def test_a_peer_that_breaks_is_left_out_with_a_word() -> None:
    """Also when it answered before; the others go on."""
    answers = iter([1, 2])

    def breaks() -> int:
        for answer in answers:
            return answer
        raise Broken("status 500")

    seen, words = in_turns(
        {("peer", "chat"): breaks, ("own", "chat"): lambda: 7}, 3, 1, may_fail=lambda key: key[0] == "peer"
    )
    assert seen == {("own", "chat"): [7, 7, 7]}
    assert words == ["peer chat is left out: status 500"]


def test_treadle_itself_may_not_break() -> None:
    """A measurement without what it is about is none."""

    def breaks() -> int:
        raise Broken("status 500")

    with pytest.raises(Broken):
        in_turns({"Treadle": breaks}, 2, 1)
