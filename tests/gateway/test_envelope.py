"""What tools give, over real HTTP: one envelope for every kind of tool, small for the model; caps that a model can
repair from; and a list of tools that stays as it was for as long as a run lasts."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.gateway import Gateway
from peers.visit import HERE
from treadle import ToolContext
from treadle.config import LimitsSection, Mcp, Settings
from treadle.config.settings import Guest, GuestsSection, LocalSection, ToolsSection, WorkspaceSection
from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext, Envelope, Outcome
from treadle.providers.fakes.scripted_model import Script, ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.runtime import SystemClock
from treadle.tools import Tool, ToolRunner, tool

QUIET = Script(turns=(ScriptTurn(text="Hello."),))
ECHO_MODULE = """(module (memory (export "memory") 2)
  (global $at (mut i32) (i32.const 1024))
  (func (export "cchat_alloc") (param $n i32) (result i32) (local $p i32)
    (local.set $p (global.get $at))
    (global.set $at (i32.add (global.get $at) (i32.and (i32.add (local.get $n) (i32.const 15)) (i32.const -8))))
    (local.get $p))
  (func (export "cchat_free") (param i32 i32))
  (func (export "tool_echo") (param i32 i32 i32 i32) (result i32)
    (memory.copy (local.get 2) (local.get 0) (local.get 1))
    (i32.store (local.get 3) (local.get 1)) (i32.const 0)))"""


@tool(effect="read")
def double(number: int, context: ToolContext) -> dict[str, int]:
    """Double a number."""
    context.warn("only a test")
    return {"twice": 2 * number}


@tool(effect="read")
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}."


class LocalGateway(Gateway):
    """A gateway with tools on the files of its folder."""

    def _settings(self, url: str) -> Settings:
        local = LocalSection(enabled=("glob", "file_read"), root=str(self._folder))
        return msgspec.structs.replace(super()._settings(url), tools=ToolsSection(local=local))


def everything(folder: Path) -> Gateway:
    """Return a gateway with a tool of every kind."""
    (folder / "note.txt").write_text("one\n")
    guest = folder / "echo.wat"
    guest.write_text(ECHO_MODULE)
    Path(f"{guest}.json").write_text(json.dumps([{"name": "echo", "parameters": {"type": "object"}}]))
    return LocalGateway(
        QUIET,
        folder,
        tools=[double, greet],
        workspace=WorkspaceSection(enabled=True, default="card"),
        mcp=(Mcp(name="toy", command=(sys.executable, str(HERE / "toy.py")), trusted=True, effect="read"),),
        guest=(Guest(name="guest", path=str(guest), kind="tools", effect="read"),),
        guests=GuestsSection(cache=False),
    )


def outcome(gateway: Gateway, name: str, arguments: Any) -> Outcome:
    """Run one call with the tools of a gateway."""
    runner = ToolRunner(gateway.runtime.registry, clock=SystemClock())
    call = CallItem(call_id="call_1", name=name, arguments=json.dumps(arguments))
    try:
        return gateway.ask(runner.run(call, CallContext(run_id="run_1", call_id="call_1")))
    finally:
        runner.close()


def test_every_kind_of_tool_gives_one_envelope_and_the_model_reads_its_data(tmp_path: Path) -> None:
    """Python, local, workspace, MCP and WASM: `ok`, `data`, `warnings`, `errors` inside; outside what is in them."""
    expected: dict[str, tuple[Any, Any, str]] = {
        "double": ({"number": 2}, {"twice": 4}, '{"twice":4,"warnings":["only a test"]}'),
        "greet": ({"name": "Ada"}, "Hello, Ada.", "Hello, Ada."),
        "locks.list": ({}, {"version": 0, "locks": []}, '{"version":0,"locks":[]}'),
        "mcp__toy__add": ({"a": 1, "b": 2}, {"result": 3}, "3"),
        "echo": ({"a": 1}, {"a": 1}, '{"a":1}'),
    }
    with everything(tmp_path) as gateway:
        for name, (arguments, data, text) in expected.items():
            result = outcome(gateway, name, arguments)
            assert (result.rc, result.text) == ("ok", text), name
            envelope = result.envelope
            assert envelope is not None, name
            assert (envelope.ok, envelope.errors) == (True, ()), name
            assert msgspec.json.decode(envelope.data) == data, name
            assert envelope.warnings == (("only a test",) if name == "double" else ()), name
        found = outcome(gateway, "glob", {"pattern": "*.txt"})
        assert found.envelope is not None
        assert msgspec.json.decode(found.envelope.data) == msgspec.json.decode(found.text)
        assert msgspec.json.decode(found.text)["count"] == 1


def test_every_failure_is_an_envelope_with_a_code(tmp_path: Path) -> None:
    """Of a tool, of its arguments, of its name: what is wrong first, then where."""
    failing = {
        "double": ({"number": "two"}, "invalid_arguments"),
        "draft.patch": ({"changes": [{"path": "/facts/x", "value": 1}]}, "invalid_pointer"),
        "mcp__toy__fail": ({}, "failed"),
        "nothing": ({}, "unknown_tool"),
        "facts.commit": ({}, "denied"),
    }
    with everything(tmp_path) as gateway:
        for name, (arguments, code) in failing.items():
            result = outcome(gateway, name, arguments)
            assert isinstance(result.envelope, Envelope), name
            assert (result.envelope.ok, result.is_error) == (False, True), name
            assert result.envelope.errors[0].code == code, name
            assert msgspec.json.decode(result.text)["error"]["code"] == code, name
        missing = outcome(gateway, "file_read", {"path": "gone.txt"})
        assert missing.envelope is not None
        assert (missing.envelope.ok, "error" in msgspec.json.decode(missing.text)) == (False, True)


def run(gateway: Gateway, **body: Any) -> httpx2.Response:
    """Let the model answer."""
    asked = {"model": "script", "input": "Go on.", **body}
    return httpx2.post(f"{gateway.url}/responses", json=asked, timeout=20)


def test_events_and_trace_give_the_envelope(tmp_path: Path) -> None:
    """Live, from the journal and as a tree: the same four fields, for a result that warns and for one that failed."""
    turns = (
        ScriptTurn(
            calls=(
                ReplyCall(name="double", args={"number": 2}),
                ReplyCall(name="file_read", args={"path": "gone.txt"}),
            )
        ),
        ScriptTurn(text="Done."),
    )
    expected = [
        {"ok": True, "data": {"twice": 4}, "warnings": ["only a test"], "errors": []},
        {
            "ok": False,
            "data": None,
            "warnings": [],
            "errors": [{"code": "not_found", "message": "File not found: gone.txt", "path": None}],
        },
    ]
    with LocalGateway(Script(turns=turns), tmp_path, tools=[double]) as gateway:
        assert run(gateway).json()["status"] == "completed"
        [found] = httpx2.get(f"{gateway.origin}/treadle/v1/runs", timeout=20).json()["runs"]
        url = f"{gateway.origin}/treadle/v1/runs/{found['id']}"
        told = httpx2.get(f"{url}/events", timeout=20).text
        events = [json.loads(line.removeprefix("data: ")) for line in told.splitlines() if line.startswith("data: ")]
        assert [each["envelope"] for each in events if each["type"] == "tool.finished"] == expected
        rounds = httpx2.get(f"{url}/trace", timeout=20).json()["trace"]["rounds"]
        assert [call["envelope"] for each in rounds for call in each["calls"]] == expected


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_a_model_repairs_arguments_that_are_too_large(tmp_path: Path, protocol: str) -> None:
    """It reads the code and the bound, sends less, and the run ends well."""
    turns = (
        ScriptTurn(calls=(ReplyCall(name="greet", args={"name": "x" * 2_000}),)),
        ScriptTurn(
            sees=Sees(result_code="arguments_too_large", contains="more than the 1024 allowed"),
            calls=(ReplyCall(name="greet", args={"name": "Ada"}),),
        ),
        ScriptTurn(sees=Sees(contains="Hello, Ada."), text="Greeted."),
    )
    limits = LimitsSection(arguments_bytes_max=1_024)
    with Gateway(Script(turns=turns), tmp_path, tools=[greet], limits=limits, protocol=protocol) as gateway:
        answer = run(gateway)
        assert (answer.status_code, answer.json()["status"]) == (200, "completed")
        assert "Greeted." in answer.text
        metrics = httpx2.get(f"{gateway.origin}/metrics", timeout=20).text
        assert 'tool_call_failures_total{rc="invalid_arguments"} 1.0' in metrics


def client_tools(count: int, **more: Any) -> list[dict[str, Any]]:
    """Return tools of a client."""
    return [{"type": "function", "name": f"t{n}", "parameters": {"type": "object"}, **more} for n in range(count)]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (client_tools(5), "The request has 5 tools; 4 are allowed."),
        (client_tools(1, description="x" * 9_000), "bytes; 4096 are allowed."),
    ],
    ids=["count", "bytes"],
)
def test_a_client_that_brings_too_many_tools_is_told(tmp_path: Path, tools: list[Any], words: str) -> None:
    """By number or by size; nothing is asked of the upstream."""
    limits = LimitsSection(tools_max=4, tools_bytes_max=4_096)
    with Gateway(QUIET, tmp_path, limits=limits) as gateway:
        answer = run(gateway, tools=tools)
        assert (answer.status_code, answer.json()["error"]["param"]) == (413, "tools")
        assert words in answer.text
        assert gateway.upstream.received == []
        assert run(gateway, tools=client_tools(4)).status_code == 200


def test_the_servers_own_tools_give_way(tmp_path: Path) -> None:
    """What does not fit beside the client's is left out, and the run says which."""
    with Gateway(QUIET, tmp_path, tools=[double, greet], limits=LimitsSection(tools_max=3)) as gateway:
        answer = run(gateway, tools=client_tools(2))
        assert answer.status_code == 200
        sent = json.loads(gateway.upstream.received[0].body)
        assert [each["function"]["name"] for each in sent["tools"]] == ["t0", "t1", "double"]
        trace = httpx2.get(f"{gateway.origin}/treadle/v1/runs/{answer.headers['x-treadle-run']}", timeout=20).text
        assert "Not offered, there are too many tools: greet." in trace


def test_the_tools_of_a_run_stay_while_the_registry_changes(tmp_path: Path) -> None:
    """A reload in the middle: the model is told of the same tools to the end, cannot call what came, and learns what
    went; the next run has the new ones."""
    held: list[Gateway] = []

    @tool(effect="read")
    def late() -> str:
        """Come late."""
        raise AssertionError("it was never offered")

    @tool(effect="read")
    def reload() -> str:
        """Change the tools."""
        held[0].runtime.registry.swap(["greet"], [late])
        return "reloaded"

    turns = (
        ScriptTurn(sees=Sees(tools=("greet", "reload")), calls=(ReplyCall(name="reload"),)),
        ScriptTurn(
            sees=Sees(tools=("greet", "reload")),
            calls=(ReplyCall(name="late"), ReplyCall(name="greet", args={"name": "Ada"})),
        ),
        ScriptTurn(sees=Sees(tools=("greet", "reload"), result_code="unknown_tool"), text="So be it."),
        ScriptTurn(sees=Sees(tools=("late", "reload")), text="Anew."),
    )
    brought: list[Tool] = [greet, reload]
    with Gateway(Script(turns=turns), tmp_path, tools=brought) as gateway:
        held.append(gateway)
        first = run(gateway)
        assert "So be it." in first.text, first.text
        plans = httpx2.get(
            f"{gateway.origin}/treadle/v1/runs/{first.headers['x-treadle-run']}/plans", timeout=20
        ).json()["plans"]
        assert len({each["tools_sha256"] for each in plans}) == 1
        row = gateway.ask(gateway.runtime.store.find_run(first.headers["x-treadle-run"]))
        assert row is not None
        assert gateway.ask(gateway.runtime.runs.verify_replay(row)).problem is None
        assert "Anew." in run(gateway).text
