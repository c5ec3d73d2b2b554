"""What a page is told of a run: parts that can be put twice, and cards in every state a call can be in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    Noted,
    ReasoningDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRecovered,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import CallItem, FilePart, ImagePart, MessageItem, ReasoningItem, ResultItem, TextPart
from treadle.core.request import Note
from treadle.server.chat_page.run_view import SHOWN_BYTES_MAX, ChatRunView, ending, merge, shown_output

CALL = CallItem(id="fc_1", call_id="c1", name="look", arguments="", side="server")
WHOLE = CallItem(id="fc_1", call_id="c1", name="look", arguments='{"a":1}', side="server")


def _apply(parts: dict[int, dict[str, Any]], ops: list[dict[str, Any]]) -> None:
    """Do what the page does with the ops."""
    for op in ops:
        match op["op"]:
            case "part":
                parts[op["part"]["id"]] = dict(op["part"])
            case "text":
                part = parts[op["id"]]
                kept = part[op["field"]].encode("utf-16-le", "surrogatepass")[: op["at"] * 2]
                part[op["field"]] = kept.decode("utf-16-le", "surrogatepass") + op["text"]
            case "set":
                parts[op["id"]] |= {name: value for name, value in op.items() if name not in ("op", "id")}
            case "drop":
                for index in op["ids"]:
                    parts.pop(index, None)
            case _:
                raise AssertionError(op)


def _said(text: str) -> list[RunEvent]:
    message = MessageItem(id="m", role="assistant")
    whole = MessageItem(id="m", role="assistant", content=(TextPart(text=text),))
    pieces = [TextDelta(index=0, text=piece) for piece in (text[:3], text[3:]) if piece]
    return [ItemAdded(index=0, item=message), *pieces, ItemDone(index=0, item=whole)]


def _called() -> list[RunEvent]:
    return [
        ItemAdded(index=1, item=CALL),
        ArgumentsDelta(index=1, text='{"a"'),
        ArgumentsDelta(index=1, text=":1}"),
        ItemDone(index=1, item=WHOLE),
    ]


def _finished(rc: str = "ok", *, is_error: bool = False, text: str = "gone") -> ToolFinished:
    result = ResultItem(call_id="c1", name="look", output=(TextPart(text=text),), is_error=is_error, rc=rc)
    return ToolFinished(index=1, call=WHOLE, result=result, source="python", duration_s=0.25)


def _screen(*events: RunEvent, mode: Any = "cards") -> ChatRunView:
    screen = ChatRunView(mode)
    for event in events:
        screen.feed(event)
    return screen


def test_text_grows_and_ends() -> None:
    """Pieces say where they belong; the end adds nothing that came already."""
    screen = ChatRunView()
    ops = [op for event in _said("Hello world") for op in screen.feed(event)]
    assert ops == [
        {"op": "part", "part": {"kind": "text", "text": "", "done": False, "id": 0}},
        {"op": "text", "id": 0, "field": "text", "at": 0, "text": "Hel"},
        {"op": "text", "id": 0, "field": "text", "at": 3, "text": "lo world"},
        {"op": "set", "id": 0, "done": True},
    ]
    assert merge(ops)[1] == {"op": "text", "id": 0, "field": "text", "at": 0, "text": "Hello world"}


@given(st.lists(st.text(max_size=8), max_size=12), st.data())
def test_whatever_is_heard_twice_changes_nothing(texts: list[str], data: st.DataObject) -> None:
    """A page that starts anywhere and hears a stretch again ends at the same picture."""
    events: list[RunEvent] = [ItemAdded(index=0, item=MessageItem(id="m", role="assistant"))]
    events += [TextDelta(index=0, text=text) for text in texts]
    screen = ChatRunView()
    told = [screen.feed(event) for event in events]
    cut = data.draw(st.integers(1, len(told)))
    back = data.draw(st.integers(1, cut))
    parts: dict[int, dict[str, Any]] = {}
    for ops in [*told[:cut], *told[back - 1 :]]:
        _apply(parts, merge(ops))
    assert list(parts.values()) == screen.parts


def test_places_are_counted_as_browsers_count() -> None:
    """A face outside the basic plane is two units in JavaScript."""
    screen = _screen(*_said("a😀b")[:2])
    assert screen.feed(TextDelta(index=0, text="!")) == [{"op": "text", "id": 0, "field": "text", "at": 4, "text": "!"}]


@pytest.mark.parametrize(
    ("rc", "is_error", "state"),
    [
        ("ok", False, "done"),
        ("ok", True, "error"),
        ("failed", True, "error"),
        ("timeout", True, "error"),
        ("denied", True, "denied"),
        ("expired", True, "expired"),
        ("cancelled", True, "stopped"),
        ("skipped", True, "stopped"),
    ],
)
def test_a_card_ends_in_the_state_of_its_result(rc: str, is_error: bool, state: str) -> None:
    """Expired is not denied, and stopped is not failed."""
    screen = _screen(*_called(), ToolStarted(index=1, call=WHOLE, source="python"), _finished(rc, is_error=is_error))
    (card,) = screen.parts
    assert (card["state"], card["output"], card["duration_ms"], card["source"]) == (state, "gone", 250.0, "python")
    assert card["arguments"] == '{"a":1}'


def test_a_card_goes_through_its_states() -> None:
    """Being written, ready, asked about, approved, running, done."""
    asked = ApprovalRequested(
        index=1, call=WHOLE, approval_id="apr_1", digest="d", reasons=("look is odd",), expires_at=9.0
    )
    decided = ApprovalDecided(
        index=1, call=WHOLE, approval_id="apr_1", status="approved", by="ada", arguments='{"a":2}'
    )
    steps: list[RunEvent] = [*_called(), asked, decided, ToolStarted(index=1, call=WHOLE), _finished()]
    screen, states = ChatRunView(), list[str]()
    for event in steps:
        screen.feed(event)
        states.append(screen.parts[0]["state"])
        if isinstance(event, ApprovalRequested):
            assert screen.parts[0]["approval"] == {
                "id": "apr_1",
                "digest": "d",
                "reasons": ["look is odd"],
                "expires_at": 9.0,
            }
    assert states == ["writing", "writing", "writing", "ready", "asking", "approved", "running", "done"]
    card = screen.parts[0]
    assert (card["approval"], card["by"], card["is_edited"]) == (None, "ada", True)


@pytest.mark.parametrize(("status", "state"), [("denied", "denied"), ("expired", "expired"), ("cancelled", "expired")])
def test_a_call_that_may_not_run_never_looks_as_if_it_ran(status: Any, state: str) -> None:
    """The start that the journal tells of such a call does not make it running."""
    decided = ApprovalDecided(index=1, call=WHOLE, approval_id="apr_1", status=status, reason="no")
    screen = _screen(*_called(), decided, ToolStarted(index=1, call=WHOLE))
    assert screen.parts[0]["state"] == state


def test_a_call_of_an_earlier_run_gets_its_card() -> None:
    """A run that goes on with a decided call has no item of it."""
    decided = ApprovalDecided(index=4, call=WHOLE, approval_id="apr_1", status="approved")
    screen = _screen(decided)
    assert (screen.parts[0]["name"], screen.parts[0]["state"]) == ("look", "approved")


def test_the_thin_mode_has_lines_instead_of_cards() -> None:
    """Neither arguments nor results are in it, also not in the changes."""
    screen = ChatRunView("text")
    events: list[RunEvent] = [*_called(), ToolStarted(index=1, call=WHOLE), _finished(text="secret")]
    ops = [op for event in events for op in screen.feed(event)]
    assert [op["part"]["text"] for op in ops] == ["Calling look…"] * 3 + ["Called look."]
    assert "secret" not in repr(ops)
    assert '{"a"' not in repr(ops)


def test_a_call_that_was_cut_off_is_taken_back() -> None:
    """A model call that is made again begins with a clean page."""
    screen = _screen(*_said("half")[:2], *_called())
    assert screen.feed(RoundBroken(round=1, indexes=(0, 1))) == [{"op": "drop", "ids": [0, 1]}]
    assert screen.parts == []


def test_of_a_call_that_was_cut_off_also_what_had_ended_is_taken_back() -> None:
    """It is said again, and stood there twice; what was said in the rounds before stays."""
    screen = _screen(
        RoundStarted(round=1, fingerprint="f"),
        *_said("before"),
        RoundStarted(round=2, fingerprint="f"),
        ItemAdded(index=1, item=MessageItem(role="assistant")),
        TextDelta(index=1, text="whole"),
        ItemDone(index=1, item=MessageItem(role="assistant", content=(TextPart(text="whole"),))),
        ItemAdded(index=2, item=CALL),
    )
    assert screen.feed(RoundBroken(round=2, indexes=(2,))) == [{"op": "drop", "ids": [1, 2]}]
    assert [part["text"] for part in screen.parts] == ["before"]


def test_a_page_that_saw_more_than_the_journal_is_put_right() -> None:
    """All parts are put anew: what the page has beyond them, and nobody knows of here, goes."""
    screen = _screen(*_said("half")[:2])
    [op] = screen.feed(RunRecovered())
    assert (op["op"], op["parts"]) == ("parts", screen.parts)
    assert op["parts"][0] is not screen.parts[0]


def test_the_end_closes_what_is_open() -> None:
    """A text without an end is done, a server's call without a result was stopped, a client's is the client's."""
    theirs = CallItem(id="fc_2", call_id="c2", name="theirs", side="client")
    screen = _screen(*_said("half")[:2], *_called(), ItemAdded(index=2, item=theirs), ItemDone(index=2, item=theirs))
    ops = screen.feed(RunEnded(status="cancelled"))
    assert {"op": "set", "id": 0, "done": True} in ops
    assert [part.get("state") for part in screen.parts] == [None, "stopped", "ready"]


def test_what_comes_in_one_piece_is_shown_too() -> None:
    """Reasoning that was never streamed, and a text that ends otherwise than it came."""
    reasoning = ReasoningItem(id="r", summary=("one", "two"))
    screen = _screen(ItemDone(index=5, item=reasoning))
    assert screen.parts == [{"kind": "reasoning", "text": "one\n\ntwo", "done": True, "id": 5}]
    screen = _screen(ItemAdded(index=0, item=ReasoningItem(id="r")), ReasoningDelta(index=0, text="onetwo"))
    (op,) = screen.feed(ItemDone(index=0, item=reasoning))
    assert op["part"]["text"] == "one\n\ntwo"


def test_long_arguments_and_results_are_cut() -> None:
    """A page gets so much; the journal has the rest."""
    screen = _screen(*_called(), _finished(text="x" * (SHOWN_BYTES_MAX + 10)))
    assert len(screen.parts[0]["output"]) <= SHOWN_BYTES_MAX + 100


def test_what_is_no_text_is_named() -> None:
    """A picture that a tool made is never fetched by the page."""
    parts = (TextPart(text="see"), ImagePart(url="https://evil.example/x"), FilePart(filename="a.pdf", url="x"))
    result = ResultItem(call_id="c1", output=parts)
    assert shown_output(result) == "see\n[picture]\n[file a.pdf]"


def test_notes_and_unknown_indexes_change_nothing() -> None:
    """Not everything that happens is for the page."""
    screen = ChatRunView()
    assert screen.feed(Noted(note=Note(code="x", action="dropped", message="m"))) == []
    assert screen.feed(TextDelta(index=9, text="x")) == []
    assert screen.feed(ArgumentsDelta(index=9, text="x")) == []


@pytest.mark.parametrize(
    ("ended", "note", "advice"),
    [
        (RunEnded(status="completed"), "", ""),
        (RunEnded(status="completed", limit="wall_s"), "A limit of the run was reached (wall_s).", ""),
        (RunEnded(status="incomplete", stop="length"), "The model reached the length it may write.", ""),
        (RunEnded(status="incomplete", stop="filtered"), "The model's provider withheld the rest.", ""),
        (RunEnded(status="cancelled"), "This answer was stopped before it was complete.", ""),
        (RunEnded(status="failed"), "The run failed.", ""),
        (
            RunEnded(status="failed", error=ErrorInfo(code="x", message="No key.", hint="Set one.")),
            "No key.",
            "Set one.",
        ),
    ],
)
def test_the_end_is_said_in_words(ended: RunEnded, note: str, advice: str) -> None:
    """Nothing where it ended as it should."""
    said = ending(ended)
    assert (said["status"], said["note"], said["advice"]) == (ended.status, note, advice)
