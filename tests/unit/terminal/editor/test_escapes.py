"""The escape corpus: whatever models, tools, names and pastes hold, the terminal obeys none of it."""

import asyncio
from pathlib import Path

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Noted,
    RefusalDelta,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import CallItem, text_message, text_result
from treadle.core.journal_entries import entry_of_item
from treadle.core.json import write_json
from treadle.core.request import Note
from treadle.terminal.permissions.permission_policy import PermissionPolicy, question_of
from treadle.terminal.permissions.remembered_permissions import Allowances
from treadle.terminal.rendering.approval_card import CardChoice, card_lines
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.styles import TextStyle
from unit.terminal.editor.test_screen_app import Seat, seat

CORPUS = {
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil.example/\x1b\\text\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "clear": "\x1b[2J\x1b[3J\x1b[H",
    "answerback": "\x05\x1b[6n\x1b[c",
    "device": '\x1bP$q"p\x1b\\',
    "program": "\x1b_payload\x1b\\\x1b^payload\x1b\\",
    "c1": "\x9b2J\x9d0;owned\x9c\x90payload\x9c",
    "alternate": "\x1b[?1049h\x1b[?1000h\x1b[?2004l",
    "charset": "\x1b(0\x0e\x1bc",
    "overwrite": "safe\rrm -rf /\b\b\b\x7f",
    "direction": "abc\u202edcba\u202c\u2066x\u2069",
    "surrogate": "\ud800\udfff",
    "null": "a\x00b\x1a\x1f",
}


def storable(text: str) -> str:
    """Return a text as JSON can hold it."""
    return text.encode("utf-8", "replace").decode()


def events(text: str) -> list[RunEvent]:
    """Put a text wherever a model or a tool can put one."""
    plain = storable(text)
    call = CallItem(call_id="c", name=f"name{text}", arguments=write_json({"a": plain}).decode(), side="server")
    raw = CallItem(call_id="d", name="tool", arguments=text, side="server")
    decided = {"index": 0, "call": call, "approval_id": "a", "by": text, "reason": text}
    return [
        *(
            TextDelta(index=0, text=f"{text}\n\n```\n{text}\n```\n\n- {text}\n| {text} |\n|---|\n"),
            RefusalDelta(index=0, text=text),
        ),
        *(ToolStarted(index=1, call=call), ToolStarted(index=2, call=raw)),
        ToolFinished(index=1, call=call, result=text_result(call, text, is_error=True, rc=text)),
        ToolFinished(index=2, call=raw, result=text_result(raw, write_json({"output": plain, "diff": plain}).decode())),
        *(ApprovalDecided(**decided, status="denied"), ApprovalDecided(**decided, status="approved", arguments=text)),
        Noted(note=Note(code="x", action="repaired", message=text)),
        RunEnded(status="completed"),
    ]


def draw(here: Seat, text: str) -> None:
    """Show a text in every way that a screen has."""
    screen = RunRenderer(here.face, TextStyle(rich=True))
    for event in events(text):
        screen.show(event)
    screen.error(ErrorInfo(code="x", message=text, hint=text))
    screen.print_prompt(text)
    screen.print_line(text)
    screen.printed(text)
    screen.document(text)
    plain = storable(text)
    screen.recall(
        [entry_of_item(text_message("user", plain), at=0.0), entry_of_item(text_message("assistant", plain), at=0.0)]
    )
    screen.status([text], RunEnded(status="completed", limit=text))
    call = CallItem(
        call_id="c", name="bash", arguments=write_json({"command": plain, "cwd": plain}).decode(), side="server"
    )
    asked = ApprovalRequested(index=0, call=call, approval_id="a", source="local", reasons=(text,))
    screen.lines(
        card_lines(PermissionPolicy("ask", Allowances("/w"), sandbox=3), question_of(asked, "/w"), lambda _: None)
    )
    here.face.paint(lambda columns, rows: [])
    screen.show(TextDelta(index=3, text=f"open {text}"))


@pytest.mark.parametrize("name", CORPUS)
async def test_nothing_of_the_corpus_reaches_the_terminal(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As committed text, open text, question, status, queue, and in the editor."""
    text = CORPUS[name]
    async with seat(tmp_path) as here:
        before = len(here.raw)
        monkeypatch.setattr(here.actions, "status_line", lambda: f"status {text}")
        here.actions.activity = f"… {text}".replace("\n", "")
        draw(here, text)
        asked = asyncio.ensure_future(here.face.choose([CardChoice(key="y", word="yes", meaning=f"once {text}")]))
        await here.sees("[y] once")
        asked.cancel()
        here.face.offer(storable(text))
        here.face.write("the end\n")
        await here.sees("the end")
        shown = here.raw[before:].decode("utf-8", "replace")
    assert text not in shown
    obeyed = {"\x07", "\x05", "\x0e", "\x00", "\x1a", "\x1f", "\x7f", *map(chr, range(0x80, 0xA0))}
    assert not set(shown) & (obeyed | set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"))
    for introducer in ("\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bc", "\x1b[2J", "\x1b[6n", "\x1b[?1049h", "\x1b[?1000h"):
        assert introducer not in shown
