"""The same desk for the library, for guests' sends and for single calls; and where nobody can be asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.approvals.desk import LOOK, WIPE_B, Ran
from treadle.config import ServerSection, Settings, StoreSection
from treadle.core.events import ApprovalDecided, ApprovalRequested, RunEnded, TextDelta, ToolFinished
from treadle.core.items import CallItem, ResultItem, text_message, text_of
from treadle.core.tool_definitions import CallContext
from treadle.engine.limits import Limits
from treadle.journal.approvals_interface import ApprovalRow
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.runs.approvals.decisions import Answer, Remember
from treadle.runtime import Parts, RandomIds, Runtime
from treadle.wasm.execution.conversation_runs import ConversationRuns, GuestConversation
from treadle.wasm.execution.thread_messages import Answered, Ask

BOUND_S = 20.0
TURNS = (ScriptTurn(calls=(LOOK, WIPE_B)), ScriptTurn(text="done"))


@asynccontextmanager
async def opened(folder: Path, ran: Ran, *, is_attended: bool = True, **sections: Any) -> AsyncIterator[Runtime]:
    """A process without a server."""
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder}/treadle.db"), **sections)
    model = ScriptedModel(Script(turns=TURNS), ids=RandomIds())
    parts = Parts(env={}, is_attended=is_attended)
    async with asyncio.timeout(BOUND_S), Runtime(settings, tools=ran.tools, model=model, parts=parts) as runtime:
        yield runtime


async def one_waits(runtime: Runtime) -> ApprovalRow:
    """Wait until a call waits for a person."""
    rows: list[ApprovalRow] = []
    while not rows:
        rows = await runtime.approvals.page(status="pending")
    return rows[0]


async def test_the_library_tells_that_it_waits_and_goes_on_when_decided(tmp_path: Path) -> None:
    """Events in order: asked, decided, run; whoever reads them can decide."""
    ran = Ran()
    async with opened(tmp_path, ran) as runtime:
        seen: list[str] = []
        async for event in runtime.run("go"):
            if isinstance(event, ApprovalRequested):
                await runtime.approvals.decide(event.approval_id, Answer(approve=True, by="me"))
            if isinstance(event, ApprovalRequested | ApprovalDecided | ToolFinished | RunEnded):
                seen.append(str(event.__struct_config__.tag))
        count = runtime.metrics.registry.value
        assert count("treadle_approvals_asked_total") == 1.0
        assert count("treadle_approvals_decided_total", {"status": "approved"}) == 1.0
    assert seen == ["approval.requested", "tool.finished", "approval.decided", "tool.finished", "run.ended"]
    assert ran.calls == [("look", "a"), ("wipe", "b")]


async def test_a_guests_send_waits_for_a_person(tmp_path: Path) -> None:
    """A tool that the guest was granted needs the same approval as everywhere."""
    ran = Ran()
    async with opened(tmp_path, ran) as runtime:

        async def call_tool(call: CallItem, context: CallContext) -> Answered:
            raise AssertionError("the guest has no tools")

        desk = ConversationRuns(runtime.runs, runtime.registry, runtime._runner, Limits(), default_model="script")
        ask = Ask(items=(text_message("user", "go"),), auto=True)
        sending = asyncio.create_task(desk.serve(ask, call_tool, GuestConversation(granted=("look", "wipe"))))
        waiting = await one_waits(runtime)
        await runtime.approvals.decide(waiting.id, Answer(approve=False, reason="not for guests"))
        sent = await sending
    results = [text_of(item.output) for item in sent.items if isinstance(item, ResultItem)]
    assert (sent.status, results[0]) == ("completed", "seen")
    assert "not for guests" in results[1]
    assert ran.calls == [("look", "a")]


async def test_where_nobody_can_be_asked_the_call_is_denied_at_once(tmp_path: Path) -> None:
    """With words that say so, and without a row; a remembered rule still answers."""
    ran = Ran()
    async with opened(tmp_path, ran, is_attended=False) as runtime:
        text = [event.result async for event in runtime.run("go") if isinstance(event, ToolFinished)]
        assert [each.rc for each in text] == ["ok", "denied"]
        assert "there is nobody to ask here" in text_of(text[1].output)
        assert await runtime.approvals.page() == []
    async with opened(tmp_path, ran) as runtime:
        running = asyncio.create_task(_drain(runtime))
        waiting = await one_waits(runtime)
        remember = Remember(kind="tool", scope="project")
        await runtime.approvals.decide(waiting.id, Answer(approve=True, remember=remember))
        await running
    async with opened(tmp_path, ran, is_attended=False) as runtime:
        await _drain(runtime)
    assert ran.calls.count(("wipe", "b")) == 2


async def test_a_single_call_is_heard_to_wait(tmp_path: Path) -> None:
    """Who makes it is told under which id it waits."""
    ran = Ran()
    heard: list[str] = []
    async with opened(tmp_path, ran, server=ServerSection(mcp=True)) as runtime:
        calling = asyncio.create_task(runtime.call("wipe", {"path": "q"}, heard.append))
        waiting = await one_waits(runtime)
        await runtime.approvals.decide(waiting.id, Answer(approve=True))
        result = await calling
    assert (text_of(result.output), ran.calls) == ("wiped q", [("wipe", "q")])
    assert heard == [f"waiting for a person's approval ({waiting.id})"]


async def test_a_rule_of_a_session_holds_in_that_session_only(tmp_path: Path) -> None:
    """The next turn there is not asked about; another session is."""
    ran = Ran()
    async with opened(tmp_path, ran) as runtime:
        first = asyncio.create_task(_drain(runtime, session="one"))
        waiting = await one_waits(runtime)
        remember = Remember(kind="pattern", scope="session", patterns={"path": "b*"})
        await runtime.approvals.decide(waiting.id, Answer(approve=True, remember=remember))
        await first
    for session, count in (("one", 0), ("two", 1)):
        async with opened(tmp_path, ran) as runtime:
            running = asyncio.create_task(_drain(runtime, session=session))
            if count:
                again = await one_waits(runtime)
                await runtime.approvals.decide(again.id, Answer(approve=False))
            await running
    assert ran.calls.count(("wipe", "b")) == 2


@pytest.mark.parametrize("cancels", [True, False])
async def test_leaving_early_withdraws_the_question(tmp_path: Path, cancels: bool) -> None:
    """By leaving the events, or by cancelling the run."""
    ran = Ran()
    async with opened(tmp_path, ran) as runtime:
        events = runtime.run("go")
        async for event in events:
            if isinstance(event, ApprovalRequested):
                break
        [row] = await runtime.approvals.page()
        if cancels:
            await runtime.runs.cancel(row.run_id)
        await events.aclose()
        assert (await runtime.approvals.find(row.id)).status == "cancelled"
    assert ran.calls in ([("look", "a")], [])


async def _drain(runtime: Runtime, session: str | None = None) -> str:
    return "".join([event.text async for event in runtime.run("go", session=session) if isinstance(event, TextDelta)])
