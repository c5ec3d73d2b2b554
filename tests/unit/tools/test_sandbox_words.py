"""Where a tool ran stands in its outcome, for every kind of tool, in words of one table."""

from pathlib import Path

import pytest

from treadle.core.items import CallItem
from treadle.core.tool_definitions import SANDBOXES, CallContext, Outcome, ServerTool, ToolSpec
from treadle.tools import Tool, ToolContext, ToolRegistry, ToolRunner, tool
from treadle.tools.local import LOCAL_NAMES, local_tools
from treadle.tools.mcp.server_options import ServerOptions
from treadle.tools.mcp.tool_discovery import choose
from treadle.tools.sandbox import CommandSandbox, FoundLevel, find_level
from treadle.tools.sandbox.isolation_level import GIVES
from treadle.tools.web import GuardedClient, WebPolicy, web_tools
from unit.tools.fakes import StillClock, outcome


@tool(effect="read")
def plain(n: int) -> int:
    """Run in this process."""
    return 1 // n


@pytest.mark.parametrize(
    ("arguments", "rc", "sandbox"),
    [('{"n":1}', "ok", "none"), ('{"n":0}', "failed", "none"), ("{}", "invalid_arguments", "")],
    ids=["ran", "failed", "never ran"],
)
async def test_a_python_function_runs_in_no_sandbox(arguments: str, rc: str, sandbox: str) -> None:
    """Also when it fails; a call that never came to run has no word."""
    found = await outcome(plain, arguments)
    assert (found.rc, found.sandbox) == (rc, sandbox)


async def test_an_unknown_tool_ran_nowhere() -> None:
    """Treadle itself answered."""
    runner = ToolRunner(ToolRegistry([]), clock=StillClock())
    found = await runner.run(CallItem(call_id="c", name="nope", arguments="{}"), CallContext(run_id="r"))
    assert (found.rc, found.sandbox) == ("unknown_tool", "")


@pytest.mark.parametrize("level", range(4))
def test_local_tools_are_below_their_root_or_at_the_level_of_the_sandbox(tmp_path: Path, level: int) -> None:
    """What opens files itself is held by its root; a command has the level, a search at most L2."""
    tools = local_tools(tmp_path, sandbox=CommandSandbox(found=FoundLevel(level=level)))
    words = {each.name: each.sandbox for each in tools}
    assert {name: words[name] for name in LOCAL_NAMES if name not in ("bash", "grep")} == dict.fromkeys(
        ("glob", "file_read", "outline", "output_read", "file_write", "file_edit"), "root"
    )
    assert (words["bash"], words["grep"]) == (f"L{level}", f"L{min(level, 2)}")


async def test_a_command_says_its_level_in_its_outcome(tmp_path: Path) -> None:
    """That of the probe, also when the command fails."""
    box = CommandSandbox()
    (bash,) = local_tools(tmp_path, names=["bash"], sandbox=box)
    runner = ToolRunner(ToolRegistry([bash]), clock=StillClock())
    for command in ("true", "exit 3"):
        call = CallItem(call_id="c", name="bash", arguments=f'{{"command":"{command}"}}')
        found: Outcome = await runner.run(call, CallContext(run_id="r"))
        assert found.sandbox == find_level().name
    runner.close()
    box.close()


async def _call(*_: object) -> object:
    return None


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (ServerOptions(name="x", command=("server",)), "process"),
        (ServerOptions(name="x", url="https://example.org/mcp"), "remote"),
    ],
    ids=["stdio", "http"],
)
def test_tools_of_mcp_servers_run_elsewhere(options: ServerOptions, word: str) -> None:
    """In the server's process, or wherever the address leads."""
    from mcp_types import Tool as Listed

    found = choose([Listed(name="act", input_schema={"type": "object"})], options, _call)
    assert [each.sandbox for each in found.tools.values()] == [word]


def test_the_web_tool_is_guarded() -> None:
    """It reaches out through the one client that checks addresses."""
    assert [each.sandbox for each in web_tools(GuardedClient(WebPolicy()))] == ["guarded"]


def test_every_word_is_in_the_table() -> None:
    """The levels too, so that a reader finds each word explained."""
    assert {f"L{level}" for level in GIVES} < set(SANDBOXES)
    words = {"none", "root", "guarded", "process", "remote", "wasm", "wasm-process"}
    assert set(SANDBOXES) == words | {f"L{level}" for level in GIVES}


def test_a_tool_under_another_policy_keeps_its_word() -> None:
    """The word belongs to the code, not to the policy."""

    def bind(arguments: dict[str, object], context: ToolContext) -> object:
        return None

    made = Tool(ServerTool(spec=ToolSpec(name="x")), bind, origin="test").placed("remote")  # type: ignore[arg-type]
    assert made.under(made.policy).sandbox == "remote"
