"""The chat's loop: turns, errors that do not end it, news from elsewhere, keys."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.core.events import ApprovalRequested, RunEvent, RunStarted, TextDelta
from treadle.core.items import CallItem, text_message
from treadle.core.journal_entries import entry_of_item
from treadle.terminal.conversation import chat_loop as chat_module
from treadle.terminal.conversation.chat_loop import ChatLoop
from treadle.terminal.conversation.conversation import Conversation
from treadle.terminal.conversation.host_interface import HostRunInfo
from treadle.terminal.permissions.permission_policy import PermissionPolicy
from treadle.terminal.permissions.remembered_permissions import Allowances
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.styles import TextStyle
from treadle.terminal.slash_commands.command_registry import COMMANDS
from unit.terminal.conversation.fake import FakeFace, FakeHost


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    for _ in range(100_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was so")


def make(tmp_path: Path, *lines: str, can_ask: bool = True) -> tuple[ChatLoop, FakeHost, FakeFace]:
    """Return a chat in which these lines will be typed."""
    host, face = FakeHost(), FakeFace(*lines, can_ask=can_ask)
    policy = PermissionPolicy("ask", Allowances("/w"))
    conversation = Conversation(host, "m", folder="/w")
    return ChatLoop(conversation, face, RunRenderer(face, TextStyle()), policy, COMMANDS, str(tmp_path)), host, face


async def test_a_turn_shows_the_answer_and_its_status(tmp_path: Path) -> None:
    """Empty lines are not sent."""
    chat, host, face = make(tmp_path, "", "  hello ", " ")
    await chat.run()
    assert len(host.asked) == 1
    shown = face.written.splitlines()
    assert shown[:3] == ["", "> hello", "you said hello"]
    assert shown[3].startswith("m · 1 round · 0 calls · 7 tokens · ")


async def test_a_turn_that_can_not_start_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    """The chat goes on after a refused request."""
    chat, host, face = make(tmp_path, "fail", "again")
    await chat.run()
    assert "✗ no such model\n  hint: name another\n" in face.written
    assert len(host.asked) == 1


async def test_a_question_is_asked_and_answered(tmp_path: Path) -> None:
    """The run waits for it, and its answer is told to the host."""
    chat, host, face = make(tmp_path, "do it")
    call = CallItem(call_id="c", name="wipe", arguments="{}", side="server")
    asked = ApprovalRequested(
        index=0, call=call, approval_id="apr_1", source="python", reasons=("wipe is destructive",)
    )
    host.answer = [asked]
    host.holds.clear()
    face.keys = ["y"]
    await asyncio.wait_for(chat.run(), 10)
    assert [(each, decision.approve) for each, decision in host.decided] == [("apr_1", True)]
    assert "wipe wants to run\n" in face.written


async def test_in_a_pipe_a_question_is_denied_at_once(tmp_path: Path) -> None:
    """The run does not wait for anybody."""
    chat, host, _ = make(tmp_path, "do it", can_ask=False)
    call = CallItem(call_id="c", name="wipe", arguments="{}", side="server")
    host.answer = [ApprovalRequested(index=0, call=call, approval_id="apr_1", source="python")]
    host.holds.clear()
    await asyncio.wait_for(chat.run(), 10)
    assert [decision.reason for _, decision in host.decided] == ["nobody can be asked here"]


async def test_what_is_said_elsewhere_is_shown_while_nobody_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two terminals on one session see the same conversation."""
    monkeypatch.setattr(chat_module, "NEWS_S", 0.01)
    chat, host, _ = make(tmp_path)
    shown = asyncio.Event()

    class Patient(FakeFace):
        async def read(self) -> str | None:
            """Read nothing until the news are there."""
            await asyncio.wait_for(shown.wait(), 10)
            return None

        def write(self, text: str) -> None:
            """Look for the answer."""
            super().write(text)
            if "their answer" in text:
                shown.set()

    await chat.take("hello")
    told: list[RunEvent] = [
        RunStarted(run_id="run_x", response_id="r", model="m", created_at=0.0),
        TextDelta(index=0, text="their answer"),
    ]
    host.runs["run_x"] = told
    host.entries["run_x"] = [entry_of_item(text_message("user", "their question"), at=0.0, is_input=True)]
    host.rows.insert(0, HostRunInfo(id="run_x", status="running", session_id="sess_1"))
    patient = Patient()
    chat.face = patient
    chat.screen = RunRenderer(patient, TextStyle())
    await chat.run()
    assert "— said elsewhere:\n\n> their question\ntheir answer" in patient.written


async def test_keys_change_the_policy_and_go_back(tmp_path: Path) -> None:
    """Shift-Tab and Esc Esc."""
    chat, _, face = make(tmp_path)
    chat.press("policy")
    assert chat.policy.mode == "auto-edit"
    await chat.take("one")
    chat.press("earlier")
    await until(lambda: bool(face.offered))
    assert face.offered == ["one"]


async def test_interrupting_stops_the_command_of_the_person_first(tmp_path: Path) -> None:
    """A turn is not touched by it."""
    chat, host, _ = make(tmp_path)
    running = asyncio.ensure_future(chat.take("!sleep 60"))
    await until(lambda: chat.shell.is_running)
    assert chat.is_running
    assert "sleep 60 runs" in chat.activity_line()
    chat.interrupt()
    await asyncio.wait_for(running, 10)
    assert host.cancelled == []


async def test_the_status_line_names_what_matters(tmp_path: Path) -> None:
    """Policy, sandbox, model, tokens, cost, time, conversation."""
    chat, host, _ = make(tmp_path)
    assert chat.status_line() == " ask · m · /help"
    chat.policy.sandbox, host.price = 3, 0.5
    await chat.take("hello")
    words = chat.status_line().strip().split(" · ")
    assert words[:5] == ["ask", "sandbox L3", "m", "7 tokens", "$0.5000"]
    assert words[-1] == "hello"
    assert chat.activity_line() == ""


async def test_commands_that_wait_and_those_that_do_not(tmp_path: Path) -> None:
    """A turn is not changed under its feet."""
    chat, _, face = make(tmp_path)
    assert chat.is_instant("/policy plan")
    assert not chat.is_instant("/new")
    assert not chat.is_instant("hello")
    chat.do_now("/policy plan")
    await until(lambda: chat.policy.mode == "plan")
    assert "> /policy plan" in face.written
