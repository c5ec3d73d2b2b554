"""The output of `treadle run`: three forms, notes apart, and the exit code of every ending."""

import io
import re

import msgspec
import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ItemAdded,
    ItemDone,
    Noted,
    ReasoningDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRecovered,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import CallItem, MessageItem, TextPart, text_result
from treadle.core.request import Note
from treadle.core.usage import Usage
from treadle.terminal.conversation.host_interface import SessionInfo
from treadle.terminal.rendering.event_messages import ANSWERS_ANEW
from treadle.terminal.rendering.jsonl_output import DOCUMENTED
from treadle.terminal.rendering.run_output import WRITERS, RunOutput

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
CALL = CallItem(call_id="call_1", name="add", arguments='{"a":1}', side="server")
MESSAGE = ItemAdded(index=0, item=MessageItem(id="m", role="assistant"))


def finished(rc: str = "ok") -> ToolFinished:
    """Return the end of a call."""
    return ToolFinished(index=0, call=CALL, result=text_result(CALL, "x", is_error=rc != "ok", rc=rc), duration_s=0.002)


def write(form: str, *events: RunEvent) -> tuple[str, str, RunOutput]:
    """Return what a form puts on stdout and stderr, and the writer."""
    out, notes = io.StringIO(), io.StringIO()
    writer = WRITERS[form](out, notes)
    for event in events:
        writer.write(event)
    writer.finish()
    return out.getvalue(), notes.getvalue(), writer


def test_text_is_the_answer_and_nothing_else() -> None:
    """Calls, notes and endings go to stderr; the answer ends with one newline; messages are a blank line apart."""
    out, notes, _ = write(
        "text",
        STARTED,
        MESSAGE,
        TextDelta(index=0, text="Let me see."),
        ToolStarted(index=1, call=CALL),
        finished(),
        Noted(note=Note(code="c", action="dropped", message="left out x")),
        MESSAGE,
        TextDelta(index=2, text="It is 1."),
        RunEnded(status="completed"),
    )
    assert out == "Let me see.\n\nIt is 1.\n"
    assert notes == "treadle: add(a=1) → ok, 2 ms\ntreadle: left out x\n"


ROUND = RoundStarted(round=1, fingerprint="f")
BROKEN = (STARTED, ROUND, MESSAGE, TextDelta(index=0, text="Hel"), RunRecovered(), RoundBroken(round=1, indexes=(0,)))
SAME = ("Hello", " world")
OTHER = ("Good", " day")


def _again(texts: tuple[str, ...]) -> list[RunEvent]:
    """Return what the model says when its call was cut off and is made again."""
    item = MessageItem(id="n", role="assistant", content=(TextPart(text="".join(texts)),))
    begun = ItemAdded(index=1, item=MessageItem(id="n", role="assistant"))
    said = [TextDelta(index=1, text=text) for text in texts]
    return [*BROKEN, ROUND, begun, *said, ItemDone(index=1, item=item), RunEnded(status="completed")]


def test_what_a_repeated_call_says_again_is_written_once() -> None:
    """A run that was recovered reads like any other, as text and for programs."""
    assert write("text", *_again(SAME))[:2] == ("Hello world\n", "")
    assert msgspec.json.decode(write("json", *_again(SAME))[0])["result"] == "Hello world"
    lines = [msgspec.json.decode(line) for line in write("jsonl", *_again(SAME))[0].splitlines()]
    assert "".join(line["text"] for line in lines if line["type"] == "text.delta") == "Hello world"
    assert not [line for line in lines if line["type"] == "text.withdrawn"]


def test_what_was_said_before_another_answer_is_withdrawn() -> None:
    """On a stream it is marked, and in what comes whole it is not there."""
    out, notes, writer = write("text", *_again(OTHER))
    assert (out, writer.text) == ("Hel\nGood day\n", "Good day")
    assert notes == f"treadle: {ANSWERS_ANEW}\n"
    assert msgspec.json.decode(write("json", *_again(OTHER))[0])["result"] == "Good day"
    text = ""
    for line in map(msgspec.json.decode, write("jsonl", *_again(OTHER))[0].splitlines()):
        assert line["type"] in DOCUMENTED
        if line["type"] == "text.delta":
            text += line["text"]
        elif line["type"] == "text.withdrawn":
            text = text[: -line["chars"]]
    assert text == "Good day"


def test_what_was_said_in_the_rounds_before_stays() -> None:
    """Only the call that was cut off is made again."""
    before = [
        STARTED,
        ROUND,
        MESSAGE,
        TextDelta(index=0, text="Let me see."),
        ToolStarted(index=5, call=CALL),
        finished(),
    ]
    second = RoundStarted(round=2, fingerprint="f")
    cut = [second, MESSAGE, TextDelta(index=0, text="Hel"), RoundBroken(round=2, indexes=(0,))]
    _, _, writer = write("text", *before, *cut, second, *_again(OTHER)[7:])
    assert writer.text == "Let me see.\n\nGood day"


def test_text_is_harmless_for_a_terminal() -> None:
    """Control characters of a model are symbols."""
    assert write("text", TextDelta(index=0, text="\x1b[2J"))[0] == "␛[2J\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal, with the same place behind it as its twin."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def isatty(self) -> bool:
        """Say yes."""
        return True

    def write(self, text: str) -> int:
        """Show it where both streams are shown."""
        self.seen.append(text)
        return len(text)


def test_on_a_terminal_a_note_never_stands_in_a_line_of_the_answer() -> None:
    """Where answer and notes share a screen, an open line is ended before a note, and the error comes on its own."""
    seen: list[str] = []
    writer = WRITERS["text"](Terminal(seen), Terminal(seen))
    writer.write(TextDelta(index=0, text="It is 17"))
    writer.write(Noted(note=Note(code="bad_frame", action="dropped", message="9 characters that are not a chunk")))
    writer.write(TextDelta(index=0, text=" °C"))
    writer.printed("tool\x1b")
    writer.write(RunEnded(status="failed", error=ErrorInfo(code="x", message="cut off", retry_after_s=7)))
    writer.finish()
    assert "".join(seen).splitlines() == [
        *("It is 17", "treadle: the upstream sent something that can not be read; it was left out"),
        *(" °C", "tool␛", "", "treadle: cut off (retry in 7 s)"),
    ]


def test_waiting_is_shown_on_a_terminal_but_never_in_a_line_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands on stderr while nothing is written, and is erased before anything is."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("treadle.terminal.rendering.progress_line.SILENCE_S", 0.0)
    seen: list[str] = []
    writer = WRITERS["text"](Terminal(seen), Terminal(seen))
    writer.tick()
    assert "".join(seen).endswith("… waiting, 0 s (Ctrl-C stops)")
    writer.write(TextDelta(index=0, text="It is"))
    assert seen[-2:] == ["\r\x1b[2K", "It is"]
    writer.tick()
    assert seen[-1] == "It is"


def test_no_answer_is_no_output() -> None:
    """A run that said nothing prints nothing, not even a newline."""
    assert write("text", STARTED, RunEnded(status="completed"))[0] == ""


def test_json_is_one_object() -> None:
    """Everything a script needs, with the text exact."""
    usage = Usage(input_tokens=3, output_tokens=4)
    out, notes, _ = write(
        "json",
        STARTED,
        TextDelta(index=0, text="a\x1bb\u202e"),
        RunEnded(status="completed", usage=usage, limit="wall_time"),
    )
    assert msgspec.json.decode(out) == {
        "session": None,
        "run": "run_1",
        "result": "a\x1bb\u202e",
        "status": "completed",
        "limit": "wall_time",
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "cost": None,
        "error": None,
    }
    assert (out.count("\n"), notes) == (1, "")


def test_jsonl_tells_the_documented_events_and_no_others() -> None:
    """One object a line, each at once, in order; every kind that can come is documented."""
    call = {"index": 0, "call": CALL, "approval_id": "apr_1"}
    out, notes = io.StringIO(), io.StringIO()
    writer = WRITERS["jsonl"](out, notes)
    session = SessionInfo(id="sess_1", name="trip", updated_at=0.0)
    writer.begin(session, "m")
    for event in (
        *(STARTED, MESSAGE, ReasoningDelta(index=0, text="hm"), TextDelta(index=0, text="a\nb")),
        ApprovalRequested(**call, reasons=("add always needs approval",)),
        ApprovalDecided(**call, status="approved", by="ada"),
        *(ToolStarted(index=1, call=CALL), finished(), Noted(note=Note(code="c", action="dropped", message="x"))),
        RunEnded(status="failed", error=ErrorInfo(code="gone", message="it is gone", hint="look")),
    ):
        writer.write(event)
    writer.progress("half way")
    writer.cost = 0.5
    writer.finish()
    lines = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert [line["type"] for line in lines] == [
        *("session.started", "turn.started", "reasoning.delta", "text.delta", "approval.requested"),
        *("approval.resolved", "tool.started", "tool.finished", "note", "tool.output.delta", "error", "turn.finished"),
    ]
    assert {*(line["type"] for line in lines), "text.withdrawn"} == set(DOCUMENTED)
    for line in lines:
        fields = re.findall(r"`(\w+)`", DOCUMENTED[line["type"]])
        assert set(fields) == set(line) - {"type"}, line
    by_type = {line["type"]: line for line in lines}
    assert by_type["tool.started"] == {"type": "tool.started", "id": "call_1", "name": "add", "args": {"a": 1}}
    assert by_type["tool.finished"]["envelope"] == {"ok": True, "data": "x", "warnings": [], "errors": []}
    assert by_type["turn.finished"]["cost"] == 0.5


def test_arguments_that_are_no_json_are_told_as_they_are() -> None:
    """A program can still show them."""
    call = CallItem(call_id="c", name="add", arguments="{bad", side="server")
    out, _, _ = write("jsonl", ToolStarted(index=0, call=call))
    assert msgspec.json.decode(out)["args"] == "{bad"


def test_a_limit_of_the_flags_and_a_bad_answer_have_their_codes() -> None:
    """They count although the run itself was cancelled, or completed."""
    _, _, writer = write("json", STARTED, RunEnded(status="cancelled"))
    writer.limit = "timeout"
    assert (writer.exit_code, writer.result.limit) == (4, "timeout")
    _, _, writer = write("json", STARTED, RunEnded(status="completed"))
    writer.error = ErrorInfo(code="schema_mismatch", message="no")
    assert writer.exit_code == 1


@pytest.mark.parametrize(
    ("events", "code", "note"),
    [
        ([RunEnded(status="completed")], 0, ""),
        (
            [RunEnded(status="completed", limit="max_iterations")],
            4,
            "the limit max_iterations (the key terminal.max_tool_turns) was reached",
        ),
        ([finished("denied"), RunEnded(status="completed")], 3, "add(a=1) → denied"),
        ([RunEnded(status="cancelled")], 130, "cancelled"),
        ([RunEnded(status="incomplete", stop="length")], 1, "reached its length limit; the answer is incomplete"),
        ([RunEnded(status="incomplete", stop="filtered")], 1, "filter stopped the answer; the answer is incomplete"),
        (
            [RunEnded(status="failed", error=ErrorInfo(code="x", message="gone", hint="look"))],
            1,
            "treadle: gone\n  hint: look\n",
        ),
        ([], 1, ""),
    ],
)
def test_the_exit_code_tells_the_ending(events: list[RunEvent], code: int, note: str) -> None:
    """Done, limit, denied, cancelled, cut and failed can be told apart by a script, and are said on stderr."""
    _, notes, writer = write("text", STARTED, *events)
    assert writer.exit_code == code
    assert note in notes


def test_a_turn_that_never_was_is_told_to_programs() -> None:
    """Who reads JSON gets JSON, also when there is nobody to answer; text stays empty."""
    error = ErrorInfo(code="not_found", message="no such model", hint="name another")
    told: dict[str, str] = {}
    for form in WRITERS:
        out, notes = io.StringIO(), io.StringIO()
        writer = WRITERS[form](out, notes)
        writer.fail(error)
        told[form] = out.getvalue()
        assert notes.getvalue() == ""
    assert told["text"] == ""
    result = msgspec.json.decode(told["json"])
    assert (result["status"], result["run"], result["error"]["code"]) == ("failed", "", "not_found")
    line = {"type": "error", "code": "not_found", "message": "no such model", "hint": "name another"}
    assert [msgspec.json.decode(each) for each in told["jsonl"].splitlines()] == [line]
