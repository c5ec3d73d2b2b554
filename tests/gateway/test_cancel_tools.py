"""Cancelling a run reaches the tool that runs, whatever kind it is: coroutine, thread, command, guest, MCP server."""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.gateway import Gateway
from guests.wat import ALLOCATOR, TOOL_TYPE
from peers.visit import HERE
from person import person_headers
from treadle import Tool, ToolContext, tool
from treadle.config import Mcp, Settings, ToolsSection
from treadle.config.settings import Guest, GuestsSection, LocalSection
from treadle.core.items import ResultItem
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall

WAIT_S = 20.0
SPIN = f"""(module {TOOL_TYPE} (memory (export "memory") 2) {ALLOCATOR}
  (func (export "tool_spin") (type $tool) (loop br 0) (i32.const 0)))"""
SPEC = [{"name": "spin", "parameters": {"type": "object", "properties": {}}}]


class Seen:
    """What the tools noticed."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.stopped = threading.Event()


def own_tools(seen: Seen) -> tuple[Tool, ...]:
    """Return a coroutine and a function that wait to be told."""

    @tool(timeout_s=120)
    async def sleep_async() -> str:
        """Wait without end."""
        seen.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.stopped.set()
        return "never"

    @tool(timeout_s=120)
    def sleep_sync(context: ToolContext) -> str:
        """Wait in a thread until nobody waits for it."""
        seen.begun.set()
        if context.wait_cancelled(WAIT_S):
            seen.stopped.set()
        return "late"

    return sleep_async, sleep_sync


class Working(Gateway):
    """A gateway with tools of every kind; its model calls the one that it is named after."""

    def __init__(self, folder: Path, seen: Seen, arguments: dict[str, dict[str, Any]]) -> None:
        def answer(plan: Plan) -> Reply:
            if isinstance(plan.items[-1], ResultItem):
                return Reply(text="done")
            return Reply(calls=(ReplyCall(name=plan.model, args=arguments.get(plan.model, {})),))

        super().__init__(answer, folder, tools=own_tools(seen))

    def _settings(self, url: str) -> Settings:
        (self._folder / "root").mkdir(exist_ok=True)
        (self._folder / "spin.wat").write_text(SPIN)
        (self._folder / "spin.wat.json").write_text(json.dumps(SPEC))
        local = LocalSection(enabled=("bash",), root=str(self._folder / "root"), policy="trust", allow_unconfined=True)
        slow = (sys.executable, str(HERE / "hostile.py"), "cancelled", str(self._folder / "mcp"))
        return msgspec.structs.replace(
            super()._settings(url),
            tools=ToolsSection(local=local),
            guests=GuestsSection(tool_cpu_s=60.0, tool_wall_s=60.0),
            guest=(Guest(name="spinner", path=str(self._folder / "spin.wat"), kind="tools"),),
            mcp=(Mcp(name="far", command=slow),),
        )


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)


def alive(marker: str) -> bool:
    """Tell whether a process with the marker in its command line lives."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes() and int(name) != os.getpid():
                return True
    return False


def post(gateway: Gateway, path: str, body: dict[str, Any]) -> Any:
    """Post JSON and read JSON."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(
        f"{gateway.origin}{path}", data, {"content-type": "application/json", **person_headers()}
    )
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return json.load(response)


@pytest.fixture
def marker(tmp_path: Path) -> str:
    """Return a word that no other process has."""
    return f"treadle-cancel-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def seen() -> Seen:
    """Return what the tools write into."""
    return Seen()


@pytest.fixture
def working(tmp_path: Path, seen: Seen, marker: str) -> Iterator[Working]:
    """Start the gateway."""
    command = f"touch begun; bash -c 'sleep 300' {marker}"
    with Working(tmp_path, seen, {"bash": {"command": command}}) as gateway:
        yield gateway


def cancelled(gateway: Gateway, model: str, has_begun: Callable[[], bool]) -> list[str]:
    """Start a run, cancel it once its tool is at work, and return the codes of its results."""
    run_id = post(gateway, "/treadle/v1/runs", {"input": "go", "model": model})["id"]
    until(has_begun)
    assert post(gateway, f"/treadle/v1/runs/{run_id}/cancel", {})["status"] == "cancelled"
    entries = gateway.ask(gateway.runtime.store.entries(run_id))
    return [json.loads(bytes(entry.data or b"{}"))["rc"] for entry in entries if entry.kind == "tool_result"]


@pytest.mark.parametrize("name", ["sleep_async", "sleep_sync"])
def test_a_function_hears_of_it(working: Working, seen: Seen, name: str) -> None:
    """A coroutine is cancelled; a thread, which nobody can kill, is told through its context."""
    assert cancelled(working, name, seen.begun.is_set) == ["cancelled"]
    assert seen.stopped.wait(WAIT_S)


def test_a_command_is_ended_with_its_children(working: Working, tmp_path: Path, marker: str) -> None:
    """Nothing that it started is left."""
    assert cancelled(working, "bash", (tmp_path / "root" / "begun").exists) == ["cancelled"]
    until(lambda: not alive(marker))


def test_a_guest_is_stopped_in_its_loop(working: Working) -> None:
    """It gives back its place at once, not at the end of its time."""

    def has_begun() -> bool:
        rows = working.ask(working.runtime.store.list_runs())
        entries = working.ask(working.runtime.store.entries(rows[0].id)) if rows else []
        return any(entry.kind == "tool_start" for entry in entries)

    began = time.monotonic()
    assert cancelled(working, "spin", has_begun) == ["cancelled"]
    assert time.monotonic() - began < WAIT_S
    until(lambda: not any("treadle-tool-spinner" in thread.name for thread in threading.enumerate()))


def test_a_server_is_told_that_nobody_waits(working: Working, tmp_path: Path) -> None:
    """As the protocol has it: by a notification for that very call."""
    told = tmp_path / "mcp"
    assert cancelled(working, "mcp__far__act", told.exists) == ["cancelled"]
    until(lambda: told.read_text() == "notifications/cancelled")
