"""Conversations in this process: the runtime behind the port."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from treadle.config import Settings, StoreSection
from treadle.config.settings import Price, WorkspaceSection
from treadle.core.errors import Conflict, NotFound
from treadle.core.events import ApprovalRequested, RunEnded, RunEvent, ToolFinished
from treadle.core.items import text_message
from treadle.core.usage import Usage
from treadle.runtime import Runtime
from treadle.runtime.injected_parts import Parts
from treadle.terminal.conversation.conversation import Conversation
from treadle.terminal.conversation.host_interface import CallDecision
from treadle.terminal.conversation.local_host import LocalHost, folder_of
from treadle.tools import tool
from treadle.workspace.workspace_state import Change
from treadle.workspace.workspace_store import PROGRAM


@tool(effect="destructive")
def wipe_disk(name: str) -> str:
    """Wipe a disk."""
    return f"wiped {name}"


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """Open a runtime with a tool that must be asked about."""
    settings = Settings(
        store=StoreSection(url=f"sqlite:///{tmp_path}/t.db"),
        workspace=WorkspaceSection(enabled=True),
        price=(Price(model="demo", input=1.0, output=2.0),),
    )
    async with Runtime(settings, tools=[wipe_disk], parts=Parts(env={}, demo_delay_s=0.0)) as opened:
        yield opened


async def send(conversation: Conversation, text: str) -> list[RunEvent]:
    """Run one turn to its end."""
    return [event async for event in conversation.send(text_message("user", text))]


async def test_a_conversation_is_kept_found_forked_and_forgotten(runtime: Runtime) -> None:
    """Its session names the folder, its runs and its words."""
    host = LocalHost(runtime)
    conversation = Conversation(host, "demo", folder="/here")
    await send(conversation, "hello")
    await send(conversation, "again")
    assert conversation.session is not None
    [info] = await host.list_sessions(10, search="hell")
    assert (info.name, info.folder) == ("hello", "/here")
    assert [entry.content for entry in await host.session_entries(info.id) if entry.kind == "user"] == [
        "hello",
        "again",
    ]
    assert [run.status for run in await conversation.chain(10)] == ["completed", "completed"]
    assert await conversation.step_back() == "again"
    assert (await conversation.rename("trip")).name == "trip"
    with pytest.raises(Conflict):
        await host.create_session("trip", "")
    await host.delete_session(conversation.session.id)
    with pytest.raises(NotFound):
        await host.find_session("trip")
    with pytest.raises(NotFound):
        await host.run_entries("run_none")


async def test_a_question_is_answered_and_the_call_runs(runtime: Runtime) -> None:
    """With other arguments, where they were changed."""
    host = LocalHost(runtime)
    conversation = Conversation(host, "demo")
    results: list[ToolFinished] = []
    async for event in conversation.send(text_message("user", "Use wipe_disk `sda`")):
        if isinstance(event, ApprovalRequested):
            answer = CallDecision(approve=True, by="ada", digest=event.digest, arguments='{"name":"sdb"}')
            await host.decide(event.approval_id, answer)
        if isinstance(event, ToolFinished):
            results.append(event)
    assert "wiped sdb" in str(results[0].result.output)


async def test_a_run_that_was_begun_elsewhere_is_watched_to_its_end(runtime: Runtime) -> None:
    """From its first event; also one that has ended."""
    host = LocalHost(runtime)
    conversation = Conversation(host, "demo")
    told = await send(conversation, "hello")
    assert conversation.run_id is not None
    again = [event async for event in Conversation(LocalHost(runtime), "demo").watch(conversation.run_id)]
    assert [type(event) for event in again if isinstance(event, RunEnded)] == [RunEnded]
    assert len(again) == len(told)
    with pytest.raises(NotFound):
        [event async for event in host.events("run_none")]


async def test_proposals_are_decided_as_they_were_shown(runtime: Runtime) -> None:
    """Confirmed against the version that was read; rejected with a reason."""
    host, desk = LocalHost(runtime), runtime.workspaces
    held = await desk.create("trip")
    for value in ("Turku", "Tampere"):
        changes = (Change(path="/facts/city", value=value),)
        await desk.propose(held.row.id, changes, author=PROGRAM)
    first, second = sorted(await host.proposals(), key=lambda each: each.lines[-1])
    assert any("Tampere" in line for line in first.lines)
    await host.confirm(first)
    await host.reject(second, "not there")
    assert await host.proposals() == []
    assert (await desk.get("trip")).workspace.facts == {"city": "Tampere"}


async def test_models_tools_and_prices_are_those_of_the_runtime(runtime: Runtime) -> None:
    """Unknown is unknown."""
    host = LocalHost(runtime)
    assert (host.place, host.is_persistent) == ("", True)
    assert "wipe_disk" in [each.name for each in await host.tools()]
    assert await host.cost("run", "demo", Usage(input_tokens=1_000_000)) == 1.0
    assert host.estimate("demo", Usage(input_tokens=2_000_000)) == 2.0
    assert await host.cost("run", "other", Usage()) is None
    with pytest.raises(NotFound):
        await host.check_model("other")
    await host.check_model("demo")
    assert await host.sandbox() in (0, 1, 2, 3)


@pytest.mark.parametrize(("metadata", "folder"), [(None, ""), (b'{"folder":"/a"}', "/a"), (b"{}", ""), (b"[1]", "")])
def test_metadata_of_others_name_no_folder(metadata: bytes | None, folder: str) -> None:
    """A session may have been made by any program."""
    assert folder_of(None if metadata is None else msgspec.Raw(metadata)) == folder
