"""What becomes of a guest's run when its process is killed, and of its clock and chance when it is replayed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from guests.playing import stage
from guests.wat import ALLOCATOR, Wat
from treadle import tool
from treadle.config import Settings, StoreSection
from treadle.core.items import ResultItem, text_of
from treadle.core.journal_entries import item_of_entry
from treadle.runtime import Parts, Runtime, SystemClock
from treadle.wasm.engine.guest_limits import Isolation
from unit.engine.fakes import FakeModel, ask_for, call, say

PROGRAM = """
import asyncio, sys
from treadle.config import Settings, StoreSection
from treadle.wasm.guest_pool import GuestModule
from treadle.runtime import Parts, Runtime
from unit.engine.fakes import FakeModel, ask_for, call

async def main():
    model = FakeModel(ask_for(call("pay", call_id="a"), call("pay", call_id="b")))
    settings = Settings(store=StoreSection(url=sys.argv[1]))
    async with Runtime(settings, model=model, parts=Parts(env={})) as runtime:
        guest = GuestModule(name="g", path=sys.argv[2], isolation=sys.argv[3], model="m")
        await runtime.guests.run(guest, on_output=lambda said: print(said.text, flush=True))

asyncio.run(main())
"""


class Later(SystemClock):
    """A clock by which the lease of the first process has ended."""

    def now(self) -> float:
        """Return a time a minute from now."""
        return time.time() + 60.0


def kill_in_tool(store: str, guest: str, isolation: Isolation) -> None:
    """Run a guest in another process, and kill that process when the guest says that it is in its tool."""
    arguments = [sys.executable, "-c", PROGRAM, store, guest, isolation]
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": tests}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in the tool\n"
        process.kill()


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_a_run_whose_guest_was_killed_is_ended_and_every_call_has_a_result(
    tmp_path: Path, isolation: Isolation
) -> None:
    """The process is killed while a tool of the guest runs: one result a call, `interrupted`, and the run failed.

    A tool of the same name in the next process is not run in the guest's stead, and the model is not asked again.
    """
    wat = Wat()
    spin = (
        f"(func $t (type $tool) (drop (call $log (i32.const 2) {wat.text('in the tool')})) (loop br 0) (i32.const 0))"
    )
    run = f"{wat.user()} (drop {wat.tool('pay')}) (call $cchat_send (local.get $fd) (i32.const 2))"
    (tmp_path / "guest.wat").write_text(wat.build(run, more=f"{ALLOCATOR} {spin} (elem (i32.const 0) $t)"))
    store = f"sqlite:///{tmp_path}/treadle.db"
    kill_in_tool(store, str(tmp_path / "guest.wat"), isolation)
    paid: list[str] = []

    @tool(effect="read")
    def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    model = FakeModel(say("gone on"))
    settings = Settings(store=StoreSection(url=store))
    async with Runtime(settings, model=model, tools=[pay], parts=Parts(env={}, clock=Later())) as runtime:
        [row] = await runtime.store.list_runs(limit=10)
        entries = await runtime.store.entries(row.id)
    assert (row.status, row.error.code if row.error else None) == ("failed", "interrupted")
    results = [item_of_entry(entry) for entry in entries if entry.kind == "tool_result"]
    assert [(item.call_id, item.rc) for item in results if isinstance(item, ResultItem)] == [
        ("a", "interrupted"),
        ("b", "interrupted"),
    ]
    assert "outcome unknown" in text_of(results[0].output)
    assert (paid, model.plans) == ([], [])


async def test_a_replay_needs_no_guest_and_takes_its_clock_and_chance_from_the_results() -> None:
    """What a tool made of the time and of random numbers stands in the journal: the proof finds the same run."""
    wat = Wat()
    body = """(func $t (type $tool)
    (i64.store (i32.const 64) (i64.and (i64.xor (call $random_i64) (call $time_now_ms)) (i64.const 0x0f0f0f0f0f0f0f0f)))
    (i64.store (local.get 2) (i64.or (i64.load (i32.const 64)) (i64.const 0x4040404040404040)))
    (i32.store (local.get 3) (i32.const 8)) (i32.const 0))"""
    run = f"{wat.user()} (drop {wat.tool()}) (call $cchat_send (local.get $fd) (i32.const 2))"
    model = FakeModel(ask_for(call("t", call_id="a"), call("t", call_id="b")), say("done"))
    async with stage() as opened:
        played = await opened.play(wat.build(run, more=f"{ALLOCATOR} {body} (elem (i32.const 0) $t)"), model=model)
        assert opened.runs is not None
        [row] = await opened.store.list_runs(limit=10)
        proof = await opened.runs.verify_replay(row)
    assert len(set(played.results)) == 2, "the tool's outputs are random"
    assert (proof.problem, proof.calls, proof.rounds) == (None, 2, 2)
