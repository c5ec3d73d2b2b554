"""What was offered and approved is what runs: a name that means another tool by now runs nothing."""

import asyncio
from pathlib import Path

import pytest

from treadle import Runtime, tool
from treadle.config import ServerSection, Settings, StoreSection
from treadle.core.events import ApprovalRequested, ToolFinished
from treadle.core.tool_definitions import CallContext, ServerTool, ToolSpec
from treadle.providers.direct_call_model import DirectModel, direct_request
from treadle.runs import RunOverrides
from treadle.runs.approvals.bound_toolbox import BoundToolbox
from treadle.runs.approvals.decisions import Answer
from treadle.tools.function_tools import function_tool
from unit.engine.fakes import FakeToolbox, call, ok

BOUND_S = 20.0


class Shelf:
    """The tools there are now."""

    def __init__(self, *tools: ServerTool) -> None:
        self._tools = tools

    def tools(self) -> tuple[ServerTool, ...]:
        """Return them."""
        return self._tools


@pytest.mark.parametrize(
    ("now", "rc"), [("python", "ok"), ("mcp:other", "denied"), (None, "ok")], ids=["the same", "another", "gone"]
)
async def test_a_call_runs_by_the_tool_that_was_offered(now: str | None, rc: str) -> None:
    """Of one that is gone the toolbox itself says so."""
    shelf = Shelf() if now is None else Shelf(ServerTool(spec=ToolSpec(name="wipe"), source=now))
    inner = FakeToolbox(wipe=ok())
    outcome = await BoundToolbox(inner, shelf, {"wipe": "python"}).run(call("wipe"), CallContext(run_id="run_1"))
    assert outcome.rc == rc
    assert inner.ran == (["call_1"] if rc == "ok" else [])


async def test_tools_that_are_others_than_those_chosen_from_are_looked_at() -> None:
    """Only while the very same are there is nothing asked of them."""
    wipe, other = (ServerTool(spec=ToolSpec(name="wipe"), source=source) for source in ("python", "mcp:other"))
    shelf, inner = Shelf(wipe), FakeToolbox(wipe=ok())
    bound = BoundToolbox(inner, shelf, {"wipe": "python"}, shelf.tools())
    assert (await bound.run(call("wipe"), CallContext(run_id="run_1"))).rc == "ok"
    shelf._tools = (other,)
    assert (await bound.run(call("wipe"), CallContext(run_id="run_1"))).rc == "denied"


async def test_an_approval_does_not_pass_to_another_tool_of_the_same_name(tmp_path: Path) -> None:
    """The tool is swapped while a person thinks: what was approved is not there any more, and nothing runs."""
    ran: list[str] = []

    @tool(effect="destructive")
    def wipe(path: str) -> str:
        """Wipe something."""
        ran.append(path)
        return "wiped"

    def other(path: str) -> str:
        """Do something else."""
        ran.append(f"other {path}")
        return "done"

    settings = Settings(server=ServerSection(mcp=True), store=StoreSection(url=f"sqlite:///{tmp_path}/t.db"))
    async with Runtime(settings, tools=[wipe]) as runtime, asyncio.timeout(BOUND_S):
        handle = await runtime.runs.start(
            direct_request("wipe", {"path": "x"}), instead=RunOverrides(model=DirectModel())
        )
        finished: list[ToolFinished] = []
        async for batch in handle.events():
            for numbered in batch:
                if isinstance(numbered.event, ApprovalRequested):
                    runtime.registry.swap(["wipe"], [function_tool(other, name="wipe", source="mcp:other")])
                    await runtime.approvals.decide(numbered.event.approval_id, Answer(approve=True))
                elif isinstance(numbered.event, ToolFinished):
                    finished.append(numbered.event)
    assert [event.result.rc for event in finished] == ["denied"]
    assert ran == []
