"""MCP servers that lie, flood, hang, hide and crash: each is an error with a reason, and nothing else suffers."""

import json
import os
from pathlib import Path

import pytest

from peers.visit import hostile, until, visit
from treadle.tools.mcp import stdio_transport as stdio
from treadle.tools.mcp.tool_discovery import DESCRIPTION_BYTES_MAX


def message_of(text: str) -> str:
    """Return the words of an error result."""
    return str(json.loads(text)["error"]["message"])


async def test_a_huge_description_is_cut() -> None:
    """Two megabytes of words do not reach a model."""
    async with visit(hostile("huge")) as seen:
        (tool,) = seen.registry.tools()
        assert len(tool.spec.description.encode()) <= DESCRIPTION_BYTES_MAX


async def test_schema_bombs_keep_only_their_own_tool_out() -> None:
    """One that unfolds without end, is too wide or points elsewhere is left out, with the reason."""
    async with visit(hostile("bombs")) as seen:
        assert seen.names == ["mcp__bad__good"]
        assert set(seen.server.left_out) == {"bomb", "wide", "far"}
        assert "unfolds into more than 10000 nodes" in seen.server.left_out["bomb"]
        assert "bytes" in seen.server.left_out["wide"]
        assert "nothing is fetched" in seen.server.left_out["far"]


async def test_a_listing_that_breaks_the_protocol_is_refused_in_one_line() -> None:
    """The reason names the field, for whoever mends the server."""
    async with visit(hostile("misshapen")) as seen:
        assert seen.server.state == "down"
        assert "tools.1.inputSchema.type Input should be 'object'" in seen.server.reason
        assert "\n" not in seen.server.reason


async def test_ten_thousand_tools_are_a_bounded_number() -> None:
    """The first that fit are taken, the others are named as left out."""
    async with visit(hostile("many")) as seen:
        assert len(seen.names) == 128
        assert len(seen.server.left_out) == 10_000 - 128


async def test_a_listing_without_end_is_given_up() -> None:
    """Pages that always have a next one are a reason to stay away."""
    async with visit(hostile("endless")) as seen:
        assert seen.server.state == "down"
        assert "more than 100 pages" in seen.server.reason


async def test_two_tools_of_one_name_are_none() -> None:
    """Nobody could know which one was approved."""
    async with visit(hostile("twice")) as seen:
        assert seen.names == ["mcp__bad__other"]
        assert "two tools of this name" in seen.server.left_out["same"]


async def test_what_nobody_can_see_is_taken_out_of_descriptions() -> None:
    """Zero-width, reordering, tag and control characters carry no instructions past a reader."""
    async with visit(hostile("hidden")) as seen:
        (tool,) = seen.registry.tools()
        assert tool.spec.description == "adds numbers[31m"
        assert b"a\\u2063b" not in bytes(tool.spec.parameters)
        assert json.loads(bytes(tool.spec.parameters))["properties"]["a"]["description"] == "ab"


async def test_a_call_that_is_never_answered_times_out() -> None:
    """The tool's own time ends it, and the server can still be asked."""
    async with visit(hostile("silent", timeout_s=0.3)) as seen:
        outcome = await seen.call("mcp__bad__act")
        assert outcome.rc == "timeout"
        assert "0.3 s" in message_of(outcome.text)


@pytest.mark.parametrize("mode", ["noise", "wrongid", "flood", "stderr"])
async def test_noise_forged_ids_and_floods_change_nothing(mode: str) -> None:
    """Only the answer to this very call is its result."""
    async with visit(hostile(mode, timeout_s=20)) as seen:
        assert (await seen.call("mcp__bad__act")).text == "done"


async def test_a_line_without_end_breaks_the_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has a bound; the call says that its server is gone."""
    monkeypatch.setattr(stdio, "LINE_BYTES_MAX", 1_000_000)
    async with visit(hostile("line")) as seen:
        outcome = await seen.call("mcp__bad__act")
        assert "went away during the call" in message_of(outcome.text)
        await until(lambda: "more than 1000000 bytes" in seen.server.reason or seen.server.state == "up")


async def test_a_link_to_a_file_is_told_and_not_followed() -> None:
    """The model reads where it leads; Treadle reads nothing."""
    async with visit(hostile("links")) as seen:
        assert (await seen.call("mcp__bad__act")).text == "[resource secret at file:///etc/passwd]"


@pytest.mark.parametrize(
    ("mode", "words"),
    [("badimage", "not base64"), ("shapeless", "no result"), ("refuses", "no no no")],
)
async def test_results_that_are_none_are_failures(mode: str, words: str) -> None:
    """What cannot be read is said in bounded words."""
    async with visit(hostile(mode)) as seen:
        outcome = await seen.call("mcp__bad__act")
        assert outcome.rc == "failed"
        assert words in message_of(outcome.text)
        assert len(outcome.text) < 2_000


async def test_a_server_that_wants_completions_gets_none() -> None:
    """Sampling is not offered: no server can run a model at our cost."""
    async with visit(hostile("sampling")) as seen:
        text = (await seen.call("mcp__bad__act")).text
        assert int(text) in (-32600, -32601)


async def test_children_of_a_server_end_with_it(tmp_path: Path) -> None:
    """The whole process group is ended, also when the server itself leaves politely."""
    note = tmp_path / "pid"
    async with visit(hostile("child", note)) as seen:
        assert seen.server.state == "up"
        pid = int(note.read_text())
        os.kill(pid, 0)
    await until(lambda: not _is_alive(pid))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_a_result_that_does_not_say_its_type_is_complete() -> None:
    """So the protocol of 2026-07-28 has it, for servers that leave the field out."""
    async with visit(hostile("modern_plain")) as seen:
        assert seen.names == ["mcp__bad__act"]
        outcome = await seen.call("mcp__bad__act")
        assert (outcome.rc, outcome.text) == ("ok", "done")


async def test_a_tool_that_asks_for_input_says_so_to_the_model() -> None:
    """It has not run, and what it asks for is named; nothing of it is answered by Treadle."""
    async with visit(hostile("modern_asking")) as seen:
        outcome = await seen.call("mcp__bad__act")
        assert outcome.rc == "failed"
        assert message_of(outcome.text) == (
            "The MCP server bad did not run the tool: it asks for further input (elicitation/create), which Treadle "
            "cannot give. Call the tool with all that it needs in its arguments, or do without it."
        )
