"""A run that waits for a person outlives a SIGKILL of its server: the same row, decided afterwards, and one call."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from gateway.approvals.desk import BOUND_S, Meanwhile, asks, decide, listed, on_postgres, pending
from gateway.restart import Life, Upstream
from person import person_key
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.tools.sandbox import can_read_only, find_level
from warm.start import Popen

WRITE = ReplyCall(name="write_down", args={"line": "b"})
PROGRAM = """
import sys
import time
import msgspec
import uvloop
from pathlib import Path
from treadle.config import LocalSection, ServerSection, Settings, StoreSection, ToolsSection, Upstream
import treadle.runtime.runtime as runtime_module
from treadle.runtime import Parts, Runtime, SystemClock
from treadle.server.server_process import serve

# PostgreSQL counts leases by its own clock: a short one does not keep the next life waiting.
options = runtime_module.runs_options
runtime_module.runs_options = lambda settings: msgspec.structs.replace(options(settings), lease_s=4.0)

class Later(SystemClock):
    # Each life begins a while later, so that the lease of the one before has ended and its question has not.
    def now(self):
        return time.time() + 60.0 * int(sys.argv[3])

async def main():
    settings = Settings(
        store=StoreSection(url=sys.argv[1]),
        server=ServerSection(port=0, keep_alive_s=0.2),
        tools=ToolsSection(
            load=(sys.argv[4],),
            local=LocalSection(enabled=("bash",), root=str(Path(sys.argv[4]).parent), network=True),
        ),
        upstream=(Upstream(name="script", base_url=sys.argv[2], models=("*",)),),
        default_model="script",
    )
    async with Runtime(settings, parts=Parts(env={}, clock=Later())) as runtime:
        await serve(runtime, lambda address: print(address.url, flush=True), 0.0)

uvloop.run(main())
"""
TOOLS = """
from pathlib import Path
from treadle import tool

@tool(effect="destructive")
def write_down(line: str) -> str:
    '''Write a line down, for good.'''
    with (Path(__file__).parent / "written").open("a") as file:
        file.write(line + "\\n")
    return f"wrote {line}"
"""


@contextmanager
def life(folder: Path, store: str, upstream: Upstream, number: int) -> Iterator[Life]:
    """Start Treadle for the `number`-th time."""
    tools = folder / "tools.py"
    tools.write_text(TOOLS)
    process = Popen(
        [sys.executable, "-c", PROGRAM, store, upstream.server.url, str(number), str(tools)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stdout is not None
    try:
        yield Life(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def written(folder: Path) -> list[str]:
    """Return what the tool has written."""
    file = folder / "written"
    return file.read_text().splitlines() if file.exists() else []


def store_of(folder: Path, kind: str) -> str:
    """Return a store that outlives a server."""
    return on_postgres().url if kind == "postgres" else f"sqlite:///{folder}/treadle.db"


def ended(origin: str, run_id: str) -> dict[str, Any]:
    """Wait for the end of a run."""
    with httpx2.stream("GET", f"{origin}/treadle/v1/runs/{run_id}/events", timeout=BOUND_S) as events:
        for _ in events.iter_bytes():
            pass
    return httpx2.get(f"{origin}/treadle/v1/runs/{run_id}", timeout=BOUND_S).json()


@pytest.mark.parametrize(("store", "is_approved"), [("sqlite", True), ("sqlite", False), ("postgres", True)])
def test_a_run_that_was_killed_while_waiting_waits_on_and_runs_its_call_once(
    tmp_path: Path, store: str, is_approved: bool
) -> None:
    """The client is gone with the server; the question stands under the same id, and its answer is heard."""
    place = store_of(tmp_path, store)
    body = {"model": "script", "messages": [{"role": "user", "content": "go"}]}
    with Upstream(asks(WRITE)) as upstream:
        with life(tmp_path, place, upstream, 1) as first:

            def wait() -> None:
                with suppress(httpx2.HTTPError):
                    httpx2.post(f"{first.url}/chat/completions", json=body, timeout=BOUND_S)

            client = Meanwhile(wait)
            [asked] = pending(first.origin)
            first.kill()
            client.result()
        assert written(tmp_path) == []
        with life(tmp_path, place, upstream, 2) as second:
            [still] = pending(second.origin)
            assert still == asked
            changed = {"arguments": {"line": "z"}} if is_approved else {}
            assert decide(second.origin, asked["id"], approve=is_approved, **changed).status_code == 200
            run = ended(second.origin, asked["run_id"])
            assert (run["status"], run["rounds"]) == ("completed", 2)
            assert decide(second.origin, asked["id"], approve=True).status_code == 409
        with life(tmp_path, place, upstream, 3) as third:
            assert [each["status"] for each in listed(third.origin)] == ["approved" if is_approved else "denied"]
    assert written(tmp_path) == (["z"] if is_approved else [])


def test_a_command_that_was_classed_read_only_runs_so_in_whichever_process_it_runs(tmp_path: Path) -> None:
    """The class is in the arguments that were decided on: another process than the one that asked holds it to them."""
    if not can_read_only(find_level()):
        pytest.skip("nothing here keeps a command from writing")
    place = store_of(tmp_path, "sqlite")
    body = {"model": "script", "messages": [{"role": "user", "content": "go"}]}
    command = {"command": "touch made; ls tools.py"}
    with Upstream(asks(ReplyCall(name="bash", args=command))) as upstream:
        with life(tmp_path, place, upstream, 1) as first:

            def wait() -> None:
                with suppress(httpx2.HTTPError):
                    httpx2.post(f"{first.url}/chat/completions", json=body, timeout=BOUND_S)

            client = Meanwhile(wait)
            [asked] = pending(first.origin)
            first.kill()
            client.result()
        with life(tmp_path, place, upstream, 2) as second:
            changed = {"arguments": {**command, "read_only": True}, "by": "policy read-only"}
            assert decide(second.origin, asked["id"], approve=True, **changed).status_code == 200
            assert ended(second.origin, asked["run_id"])["status"] == "completed"
            run = httpx2.get(f"{second.origin}/treadle/v1/runs/{asked['run_id']}", timeout=BOUND_S).text
    result = run.replace("\\", "")
    assert '"read_only":true' in result
    assert "tools.py" in result
    assert "arguments_changed" not in result
    assert not (tmp_path / "made").exists()


def test_a_response_that_asked_is_answered_after_a_restart(tmp_path: Path) -> None:
    """The questions are in the journal: the next server carries the call on."""
    place = store_of(tmp_path, "sqlite")
    with Upstream(asks(WRITE)) as upstream:
        with life(tmp_path, place, upstream, 1) as server, _client(server) as sdk:
            first = sdk.responses.create(model="script", input="go")
            server.kill()
        [asked] = first.output
        answer: Any = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}
        with life(tmp_path, place, upstream, 2) as server, _client(server) as sdk:
            second = sdk.responses.create(model="script", previous_response_id=first.id, input=[answer])
    assert (second.output_text, written(tmp_path)) == ("wrote b", ["b"])


def _client(server: Life) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key=person_key(), max_retries=0)
