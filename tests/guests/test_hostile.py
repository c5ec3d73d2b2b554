"""No guest kills or stalls the process, sees another's data, or leaves a call without a result."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from guests.hostile import CASES, Case
from guests.playing import OnePool, Played, stage
from guests.wat import Wat, with_tool
from treadle.core.events import ModelEvent
from treadle.core.plan import Plan
from treadle.wasm.engine.compiler import BadGuest
from treadle.wasm.engine.guest_limits import EngineMode, Isolation, SandboxLimits
from treadle.wasm.guest_pool import TooManyGuests
from unit.engine.fakes import FakeModel, ask_for, call, say

STALL_S = 15.0
"""Far over every limit of these guests; a machine that is busy with other things needs the room."""


def wrong(case: Case, played: Played) -> str | None:
    """Say what is not as it must be."""
    if played.answer != case.answer:
        return f"{case.name}: {played.answer!r} is not {case.answer!r} ({played.ended.stop})"
    calls = [entry.call_id for entry in played.entries if entry.kind == "tool_call"]
    results = [entry.call_id for entry in played.entries if entry.kind == "tool_result"]
    server = [entry.call_id for entry in played.entries if entry.kind == "tool_start"]
    if results and calls != results:
        return f"{case.name}: the calls {calls} have the results {results}"
    if server and len(results) != len(calls):
        return f"{case.name}: a call that ran has no result"
    if len(played.results) < len(case.results):
        return f"{case.name}: the model read {played.results}"
    for wanted, text in zip(case.results, played.results, strict=False):
        if wanted not in text:
            return f"{case.name}: {text!r} does not say {wanted!r}"
    if played.ended.wall_s > STALL_S:
        return f"{case.name}: took {played.ended.wall_s} s"
    return None


GROUPS = 8
"""How many tests share the guests of a mode and an isolation: enough for several processes of tests."""


async def play_group(group: int, mode: EngineMode, isolation: Isolation) -> list[str]:
    """Play every eighth guest, one after the other on one stage; return what went wrong."""
    found: list[str] = []
    async with stage() as opened:
        for case in CASES[group::GROUPS]:
            played = await opened.play(
                case.wat, model=case.model(), limits=case.limits, mode=mode, isolation=isolation, name=case.name
            )
            found += filter(None, [wrong(case, played)])
        assert opened.quarters.live == 0
    return found


@pytest.mark.parametrize("mode", ["safe", pytest.param("fast", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("group", range(GROUPS))
async def test_in_a_thread_every_hostile_guest_gets_its_answer(group: int, mode: EngineMode) -> None:
    """The answer is exact, every call has one result, and the next guest is as well as ever."""
    assert await play_group(group, mode, "thread") == []


@pytest.mark.parametrize("mode", [pytest.param("safe", marks=pytest.mark.exhaustive), "fast"])
@pytest.mark.parametrize("group", range(0, GROUPS, 4))
async def test_in_a_process_every_hostile_guest_gets_its_answer(group: int, mode: EngineMode) -> None:
    """The same answers come out of a process of the guest's own, one guest after the other."""
    found = [await play_group(each, mode, "process") for each in range(group, group + 4)]
    assert found == [[]] * 4


def test_there_are_many_of_them() -> None:
    """Eighty was asked for; no two have the same name, and every one is in a group."""
    assert len(CASES) >= 80
    assert sum(len(CASES[group::GROUPS]) for group in range(GROUPS)) == len(CASES)
    assert len({case.name for case in CASES}) == len(CASES)


REFUSED = {
    "not WASM at all": b"#!/bin/sh\n",
    "nothing": b"",
    "a module cut off": b"\0asm\1\0\0\0\1",
    "memory of 64 bits": '(module (memory (export "memory") i64 1))',
    "shared memory": '(module (memory (export "memory") 1 2 shared))',
    "two memories": '(module (memory (export "memory") 1) (memory 1))',
    "references to the host": '(module (memory (export "memory") 1) (table (export "t") 1 externref))',
    "garbage collected types": '(module (type $s (struct (field i32))) (memory (export "memory") 1))',
}


@pytest.mark.parametrize("mode", ["safe", "fast"])
@pytest.mark.parametrize("name", REFUSED)
async def test_what_the_engine_does_not_take_is_refused_before_it_runs(name: str, mode: EngineMode) -> None:
    """The refusal is a bad request that says why; nothing was started."""
    async with stage() as opened:
        with pytest.raises(BadGuest, match="cannot be compiled"):
            await opened.play(REFUSED[name], mode=mode)
        assert opened.quarters.live == 0


async def test_a_module_that_is_too_large_is_not_even_compiled() -> None:
    """The bound is on the bytes that come in."""
    async with stage() as opened:
        with pytest.raises(BadGuest, match="at most 1000 are taken"):
            await opened.play(b"\0asm\1\0\0\0" + bytes(1_000), limits=SandboxLimits(module_bytes_max=1_000))


async def test_a_guest_too_many_is_refused_and_the_others_go_on() -> None:
    """The bound is on those alive: when one has ended there is room again."""
    hold = asyncio.Event()
    model = FakeModel(say("hello")[:1], hold=hold)
    wat = Wat()
    guest = wat.build(f"{wat.user()} (call $cchat_send (local.get $fd) (i32.const 0))")
    async with stage(live_max=1) as opened:
        first = asyncio.create_task(opened.play(guest, model=model))
        await model.spoke.wait()
        with pytest.raises(TooManyGuests):
            await opened.play(guest)
        hold.set()
        assert (await first).answer == 1001
        assert (await opened.play(guest)).answer == 1001


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_cancelling_a_guest_that_waits_for_its_model_ends_both(isolation: Isolation) -> None:
    """The run is cancelled and written down, and the guest is gone, although the model never answered."""
    model = FakeModel(say("hello")[:1], hold=asyncio.Event())
    wat = Wat()
    guest = wat.build(f"{wat.user()} (call $cchat_send (local.get $fd) (i32.const 0))")
    async with stage() as opened:
        task = asyncio.create_task(opened.play(guest, model=model, isolation=isolation))
        await model.spoke.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        rows = await opened.store.list_runs(limit=10)
        assert [row.status for row in rows] == ["cancelled"]
        assert opened.quarters.live == 0
    assert model.closed == 1


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_cancelling_a_guest_that_spins_ends_it_and_no_other(isolation: Isolation) -> None:
    """One of two guests that spin is cancelled; the other goes on to its own limit."""
    spin = Wat().build("(loop br 0) (i32.const 0)")
    limits = SandboxLimits(cpu_s=0.4, wall_s=20)
    async with stage() as opened:
        other = asyncio.create_task(opened.play(spin, limits=limits, isolation=isolation))
        task = asyncio.create_task(opened.play(spin, limits=SandboxLimits(cpu_s=60, wall_s=60), isolation=isolation))
        await asyncio.wait({other}, timeout=0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await other).answer == "timeout"


async def test_waiting_for_a_model_costs_a_guest_no_cpu() -> None:
    """A budget of 0.2 s outlives a model that takes longer."""

    class Slow(FakeModel):
        async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
            await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=0.4)
            async for batch in super().stream(plan, run_id):
                yield batch

    wat = Wat()
    guest = wat.build(f"{wat.user()} (call $cchat_send (local.get $fd) (i32.const 0))")
    async with stage() as opened:
        played = await opened.play(guest, model=Slow(say("late")))
    assert played.answer == 1001
    assert played.ended.cpu_s < 0.2 < played.ended.wall_s


async def test_a_guest_that_waits_too_long_is_stopped_by_the_clock_on_the_wall() -> None:
    """A model that never answers cannot hold a guest past its wall limit."""
    model = FakeModel(say("hello")[:1], hold=asyncio.Event())
    wat = Wat()
    guest = wat.build(f"{wat.user()} (call $cchat_send (local.get $fd) (i32.const 0))")
    async with stage() as opened:
        played = await opened.play(guest, model=model, limits=SandboxLimits(cpu_s=5, wall_s=0.3))
    assert played.answer == "timeout"
    assert played.statuses == ["cancelled"]


async def test_a_worker_that_is_killed_is_a_crash_of_its_guest_only() -> None:
    """The run ends, the call has its result, and the next guest gets a new process."""
    model = FakeModel(ask_for(call("t")), say("done"))
    spinning = with_tool("(func $t (type $tool) (loop br 0) (i32.const 0))")
    async with stage() as opened:
        guest = asyncio.create_task(
            opened.play(spinning, model=model, isolation="process", limits=SandboxLimits(cpu_s=60, wall_s=60))
        )
        pool = opened.quarters.workers
        assert isinstance(pool, OnePool)
        async with asyncio.timeout(20):
            while "tool_start" not in await opened.kinds():
                await asyncio.wait({guest}, timeout=0.01)
        await pool.busy[0].kill()
        played = await guest
        assert played.answer == "crash"
        assert len(played.results) == 1
        wat = Wat()
        assert (await opened.play(wat.build("(i32.const 7)"), isolation="process")).answer == 7
