"""The real `openai` SDK and a response whose tool was running when its server was killed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai

from chaos.server import prepare
from chaos.stores import violations
from warm.start import Popen

BOUND_S = 60.0
PROGRAM = """
import sys
import time
import uvloop
from treadle.config import ServerSection, Settings, StoreSection, ToolsSection
from treadle.runtime import Parts, Runtime, SystemClock
from treadle.server.server_process import serve

class Later(SystemClock):
    # Each life begins a while later, so that the lease of the one before has ended and its time has not.
    def now(self):
        return time.time() + 60.0 * int(sys.argv[3])

async def main():
    settings = Settings(
        store=StoreSection(url=sys.argv[1]), server=ServerSection(port=0), tools=ToolsSection(load=(sys.argv[2],))
    )
    async with Runtime(settings, parts=Parts(env={}, clock=Later(), demo_delay_s=0.005)) as runtime:
        await serve(runtime, lambda address: print(address.url, flush=True), 0.0)

uvloop.run(main())
"""


class Life:
    """One process of Treadle, and an SDK client of it."""

    def __init__(self, folder: Path, number: int) -> None:
        arguments = [f"sqlite:///{folder}/treadle.db", str(folder / "tools.py"), str(number)]
        self.process = Popen(
            [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert self.process.stdout is not None
        self.sdk = openai.OpenAI(
            base_url=f"{self.process.stdout.readline().strip()}/v1", api_key="unused", max_retries=0, timeout=BOUND_S
        )

    def kill(self) -> None:
        """End it as a power cut would; without effect the second time."""
        self.process.kill()
        self.process.wait()


@contextmanager
def life(folder: Path, number: int) -> Iterator[Life]:
    """Start a process and leave nothing of it behind."""
    alive = Life(folder, number)
    try:
        yield alive
    finally:
        alive.kill()
        alive.sdk.close()
        assert alive.process.stdout is not None
        alive.process.stdout.close()


def effects(folder: Path) -> int:
    """Return how often a tool did its work."""
    return (folder / "ledger").read_text().count("\n") if (folder / "ledger").exists() else 0


def polled(sdk: openai.OpenAI, response_id: str) -> Any:
    """Ask until the response has ended."""
    deadline = time.monotonic() + BOUND_S
    while (response := sdk.responses.retrieve(response_id)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline, response.status
    return response


def started(alive: Life, folder: Path, text: str) -> list[Any]:
    """Stream a background response until its tool has done its work, then kill the server; return what was seen."""
    seen: list[Any] = []
    with alive.sdk.responses.create(model="demo", input=text, background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.mcp_call.in_progress":
                break
        deadline = time.monotonic() + BOUND_S
        while not effects(folder):
            assert time.monotonic() < deadline
        alive.kill()
    return seen


def test_a_payment_is_polled_across_a_kill_and_made_once(tmp_path: Path) -> None:
    """The response goes on by itself; the call that nobody knows the outcome of is not made again."""
    prepare(tmp_path, BOUND_S)
    with life(tmp_path, 1) as first:
        seen = started(first, tmp_path, "Please pay the amount 42")
    (tmp_path / "pause").write_text("0")
    with life(tmp_path, 2) as second:
        response = polled(second.sdk, seen[0].response.id)
    assert response.status == "completed"
    assert effects(tmp_path) == 1
    assert violations(f"sqlite:///{tmp_path}/treadle.db", tmp_path) == []


def test_a_stream_goes_on_after_a_kill_in_a_tool(tmp_path: Path) -> None:
    """`starting_after` gives every event that follows, once; a harmless tool is run again under the same key."""
    prepare(tmp_path, BOUND_S)
    with life(tmp_path, 1) as first:
        seen = started(first, tmp_path, "Please upsert the amount 42")
    (tmp_path / "pause").write_text("0")
    with life(tmp_path, 2) as second:
        response_id, last = seen[0].response.id, seen[-1].sequence_number
        with second.sdk.responses.retrieve(response_id, stream=True, starting_after=last) as stream:
            seen += list(stream)
        whole = [event.to_json() for event in second.sdk.responses.retrieve(response_id, stream=True)]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.to_json() for event in seen] == whole
    assert seen[-1].type == "response.completed"
    assert effects(tmp_path) == 2
    assert violations(f"sqlite:///{tmp_path}/treadle.db", tmp_path) == []


def test_a_response_is_cancelled_after_a_kill_in_a_tool(tmp_path: Path) -> None:
    """The next life's server ends it, once, and its call has a result."""
    prepare(tmp_path, BOUND_S)
    with life(tmp_path, 1) as first:
        seen = started(first, tmp_path, "Please upsert the amount 42")
    with life(tmp_path, 2) as second:
        response_id = seen[0].response.id
        assert second.sdk.responses.cancel(response_id).status == "cancelled"
        assert second.sdk.responses.retrieve(response_id).status == "cancelled"
    assert violations(f"sqlite:///{tmp_path}/treadle.db", tmp_path) == []
