"""What there is in a history that an upstream may not take."""

import pytest

from treadle.canon.items import CallItem, MessageItem, text_message, text_result
from treadle.wire.adapt.survey import Survey
from treadle.wire.adapt.traits import Rule, Traits

CALL = CallItem(call_id="a", name="f", arguments="{}")
SHORT, LONG = Rule(chars_max=1), Rule(chars_max=9)


def survey(*items) -> Survey:
    """Look at items, one by one."""
    made = Survey()
    for item in items:
        made.add([item])
    return made


def test_texts_alone_have_no_calls():
    """And no ids that could be taken."""
    made = survey(text_message("user", "hi"))
    assert (made.has_calls, made.call_ids, made.names) == (False, frozenset(), set())


def test_calls_and_results_are_known_by_their_tools_but_only_calls_take_ids():
    """A result whose call is not here has an id of its own."""
    other = text_result(CallItem(call_id="b", name="g", arguments="{}"), "done")
    made = survey(CALL, text_result(CALL, "done"), other)
    assert (made.has_calls, made.call_ids, made.names) == (True, {"a"}, {"f", "g"})
    assert survey(other).has_calls


@pytest.mark.parametrize(
    ("role", "has_late_system", "is_odd"),
    [
        ("user", False, False),
        ("assistant", False, False),
        ("system", True, False),
        ("system", False, True),
        ("developer", True, True),
    ],
)
def test_roles_that_an_upstream_may_not_know(role, has_late_system, is_odd):
    """Developers, and a system that speaks late where that is not allowed."""
    made = survey(text_message("user", "hi"), MessageItem(role=role))
    assert made.has_odd_roles(Traits(has_late_system=has_late_system)) is is_odd


@pytest.mark.parametrize(
    "odd",
    [
        CallItem(call_id="a", name="f", arguments="", kind="custom"),
        CallItem(call_id="a", name="f", arguments="{}", namespace="n"),
        text_result(CallItem(call_id="a", name="f", arguments="", kind="custom"), "done"),
    ],
)
def test_calls_that_are_not_plain(odd):
    """One of them is enough, wherever it stands."""
    assert survey(CALL).has_plain_calls(SHORT)
    assert not survey(CALL, odd, CALL).has_plain_calls(SHORT)


def test_ids_are_looked_at_once_for_each_rule():
    """Those that fit stay fitting, one that does not is found again, and another rule has to be asked about all."""
    made = survey(CALL)
    assert (made.has_plain_calls(SHORT), made.has_plain_calls(LONG)) == (True, True)
    made.add([CallItem(call_id="bb", name="f", arguments="{}")])
    assert [(made.has_plain_calls(SHORT), made.has_plain_calls(LONG)) for _ in range(2)] == [(False, True)] * 2
    made.add([CALL])
    assert (made.has_plain_calls(SHORT), made.has_plain_calls(LONG)) == (False, True)
