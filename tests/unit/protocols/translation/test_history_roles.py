"""Roles and files of results, where an upstream knows less."""

import pytest

from treadle.core.items import (
    AnyItem,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.protocols.translation.history_roles import Survey, mend_calls, move_files, settle_roles
from treadle.protocols.translation.upstream_features import FeatureRule, Traits
from treadle.protocols.translation_notes import Notes

SYSTEM, DEVELOPER, USER = (text_message(role, role) for role in ("system", "developer", "user"))
IMAGE = ImagePart(url="data:image/png;base64,AA==")


def roles(items: list[AnyItem], traits: Traits) -> tuple[list[tuple[str, str]], list[tuple[str, str, int]]]:
    """Return role and text of each message, and the notes."""
    notes = Notes()
    settled = [item for item in settle_roles(items, traits, notes) if isinstance(item, MessageItem)]
    said = [(note.code, note.action, note.count) for note in notes.all()]
    return [(item.role, item.content[0].text) for item in settled], said  # type: ignore[union-attr]


def test_roles_that_are_known_stay():
    """Nothing is noted where nothing changes."""
    items = [SYSTEM, DEVELOPER, USER, DEVELOPER]
    assert roles(items, Traits(has_developer=True)) == ([(item.role, item.role) for item in items], [])


def test_developers_speak_as_the_system():
    """Everywhere, also late, and said once with a count."""
    assert roles([DEVELOPER, USER, DEVELOPER], Traits()) == (
        [("system", "developer"), ("user", "user"), ("system", "developer")],
        [("developer_role", "coerced", 2)],
    )


def test_late_system_messages_become_a_user_s_with_a_marker():
    """Leading ones stay, later ones keep their place."""
    traits = Traits(has_late_system=False)
    assert roles([SYSTEM, DEVELOPER, USER, SYSTEM, DEVELOPER], traits) == (
        [
            ("system", "system"),
            ("system", "developer"),
            ("user", "user"),
            ("user", "[system] system"),
            ("user", "[developer] developer"),
        ],
        [("developer_role", "coerced", 1), ("late_system", "coerced", 2)],
    )


def test_a_late_message_without_text_gets_the_marker_as_text():
    """An image said by the system is still an image."""
    late = MessageItem(role="system", content=(IMAGE,))
    *_, moved = settle_roles([USER, late], Traits(has_late_system=False), Notes())
    assert moved == MessageItem(role="user", content=(TextPart(text="[system]"), IMAGE))


def test_anything_but_system_ends_the_leading_ones():
    """A call at the start of a compacted history is history, too."""
    call = CallItem(call_id="c", name="f")
    assert roles([call, SYSTEM], Traits(has_late_system=False))[0] == [("user", "[system] system")]


@pytest.mark.parametrize("follows", [(), (USER,)])
def test_files_of_results_follow_the_run_of_results(follows):
    """Pairs of calls and results stay together; the user message comes behind all of them, nothing is lost."""
    file = FilePart(url="https://example.org/a.pdf")
    first = ResultItem(call_id="c1", name="shot", output=(TextPart(text="see"), IMAGE))
    second = ResultItem(call_id="c2", name="", output=(file, IMAGE))
    plain = ResultItem(call_id="c3", output=(TextPart(text="plain"),))
    notes = Notes()
    marker = "[{} attachment(s) of this result follow in the next user message]"
    assert list(move_files([first, second, plain, *follows], notes)) == [
        ResultItem(call_id="c1", name="shot", output=(TextPart(text="see"), TextPart(text=marker.format(1)))),
        ResultItem(call_id="c2", name="", output=(TextPart(text=marker.format(2)),)),
        plain,
        MessageItem(
            role="user",
            content=(
                TextPart(text="[attached to the result of shot (c1)]"),
                IMAGE,
                TextPart(text="[attached to the result of the call (c2)]"),
                file,
                IMAGE,
            ),
        ),
        *follows,
    ]
    assert [(note.code, note.action, note.count) for note in notes.all()] == [("result_attachment", "emulated", 2)]


CALL = CallItem(call_id="a", name="f", arguments="{}")
SHORT, LONG = FeatureRule(chars_max=1), FeatureRule(chars_max=9)


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


def test_arguments_that_are_no_object_are_sent_as_one_or_not_at_all():
    """Of a call that was answered the model sees what it wrote; one that nobody ran is a text, and free text stays."""
    cut, wrong = CallItem(call_id="a", name="f", arguments='{"'), CallItem(call_id="b", name="f", arguments="[1]")
    empty, free = CallItem(call_id="c", name="f"), CallItem(call_id="d", name="p", arguments="{x", kind="custom")
    closed, refused = text_result(cut, "?", is_error=True, rc="interrupted"), text_result(wrong, "no", is_error=True)
    results = (text_result(empty, "ok"), text_result(free, "ok"))
    items = (USER, cut, wrong, empty, free, closed, refused, *results)
    survey, notes = Survey(), Notes()
    survey.add(items)
    assert survey.has_broken_calls
    assert mend_calls(items, notes) == (
        USER,
        text_message("assistant", "[A call of f was cut off before it was whole, and not run.]"),
        CallItem(call_id="b", name="f", arguments='{"INVALID_JSON":"[1]"}'),
        CallItem(call_id="c", name="f", arguments="{}"),
        free,
        refused,
        *results,
    )
    assert [note.code for note in notes.all()] == ["cut_call", "arguments_wrapped"]
    whole = Survey()
    whole.add((CallItem(call_id="a", name="f", arguments=' {"a": "é"} '), free))
    assert not whole.has_broken_calls
