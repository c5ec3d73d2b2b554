"""Session guests that behave: every send is a run, AUTO calls their tools, and without it nothing changes."""

import asyncio
import json

import pytest

from guests.playing import calling, stage
from guests.wat import ALLOCATOR, ECHO, Wat, with_tool
from treadle.core.items import CallItem, ResultItem
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.core.usage import Usage
from treadle.wasm.engine.guest_limits import EngineMode, Isolation, SandboxLimits
from unit.engine.fakes import FakeModel, ask_for, call, say

PRINT = """(i32.store (i32.const 64) (i32.const 60000))
    (drop (call $cchat_recv (local.get $r) (i32.const 70000) (i32.const 64)))
    (call $log (i32.const 2) (i32.const 70000) (i32.load (i32.const 64)))"""
"""Logs the answer $r."""
SLOT = f"{ECHO} (elem (i32.const 0) $t)"
WHERE = pytest.mark.parametrize("isolation", ["thread", "process"])


@WHERE
async def test_auto_calls_the_guests_functions_and_the_model_reads_their_output(isolation: Isolation) -> None:
    """The results stand in the journal in call order, and the next model call has them."""
    model = calling('{"a":1}', '{"a":2}', then="both done")
    async with stage() as opened:
        played = await opened.play(with_tool(), model=model, isolation=isolation)
    assert played.answer == 1001
    assert played.statuses == ["completed"]
    assert played.results == ['{"a":1}', '{"a":2}']
    ran = [json.loads(bytes(entry.data or b"{}")) for entry in played.entries if entry.kind == "tool_result"]
    assert [each["sandbox"] for each in ran] == ["wasm", "wasm"]
    read = [item.output[0].text for item in model.plans[1].items if isinstance(item, ResultItem)]
    assert read == ['{"a":1}', '{"a":2}']


async def test_the_answer_is_a_chat_completion_with_real_usage() -> None:
    """What a guest receives is the last turn's message, the finish and the tokens of all rounds."""
    wat = Wat()
    run = f"{wat.user()} (drop {wat.tool()}) (local.set $r (call $cchat_send (local.get $fd) (i32.const 3))) {PRINT}"
    usage = Usage(input_tokens=5, output_tokens=2)
    model = FakeModel(ask_for(call("t"), usage=usage), say("it is done", usage=usage))
    async with stage() as opened:
        played = await opened.play(wat.build(run, more=f"{ALLOCATOR} {SLOT}"), model=model)
    body = json.loads(played.said[0].text)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "it is done"}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    assert body["treadle"]["run_id"] == played.ended.run_ids[0]


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [(1, {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "iterations": 1, "tool_calls": 0}), (0, {})],
)
async def test_metrics_are_there_when_they_were_asked_for(flags: int, wanted: dict[str, int]) -> None:
    """Flag bit 0 is what fills GET_METRICS."""
    wat = Wat()
    run = f"""{wat.user()} (drop (call $cchat_send (local.get $fd) (i32.const {flags})))
    (i32.store (i32.const 64) (i32.const 1000))
    (drop (call $cchat_ctl (local.get $fd) (i32.const 2) (i32.const 70000) (i32.const 64)))
    (call $log (i32.const 2) (i32.const 70000) (i32.load (i32.const 64)))"""
    model = FakeModel(say("hello", usage=Usage(input_tokens=5, output_tokens=2)))
    async with stage() as opened:
        played = await opened.play(wat.build(run), model=model)
    assert json.loads(played.said[0].text) == wanted


async def test_without_auto_the_guest_runs_its_own_loop() -> None:
    """The calls come back, nothing of the guest is called, its result goes with the next send."""
    wat = Wat()
    send = "(call $cchat_send (local.get $fd) (i32.const 0))"
    run = f"""{wat.user()} (drop {wat.tool()}) (local.set $r {send}) (drop {PRINT})
    (drop (call $cchat_write_result (local.get $fd) {wat.text("call_1")} {wat.text("42")})) {send}"""
    trapping = "(func $t (type $tool) unreachable) (elem (i32.const 0) $t)"
    model = FakeModel(ask_for(call("t")), say("done"))
    async with stage() as opened:
        played = await opened.play(wat.build(run, more=trapping), model=model)
    assert played.answer == 1002
    assert played.statuses == ["requires_action", "completed"]
    choice = json.loads(played.said[0].text)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "t", "arguments": "{}"}
    items = model.plans[1].items
    assert [type(item) for item in items[1:]] == [CallItem, ResultItem]


async def test_under_the_old_name_the_old_rules_hold() -> None:
    """Without AUTO nothing is appended and nothing refused; a second close is 0; a bad tool is accepted."""
    wat = Wat("spear")
    send = "(call $cchat_send (local.get $fd) (i32.const 0))"
    run = f"""{wat.user()} (drop {wat.tool()}) (drop {send}) (drop {send})
    (if (i32.ne (call $cchat_write_fn (local.get $fd) (i32.const 0) {wat.text("no json")}) (i32.const 0))
      (then (return (i32.const 100))))
    (drop (call $cchat_close (local.get $fd))) (call $cchat_close (local.get $fd))"""
    model = FakeModel(ask_for(call("t")))
    async with stage() as opened:
        played = await opened.play(wat.build(run, more=SLOT), model=model)
    assert played.answer == 0
    assert [len(plan.items) for plan in model.plans] == [1, 1]


@WHERE
@pytest.mark.parametrize("mode", ["safe", "fast"])
async def test_a_guest_of_the_original_host_runs_unmodified(isolation: Isolation, mode: EngineMode) -> None:
    """Module `spear`, an arena by two parameters, a tool by its slot, one WASI import, `_start` as entry."""
    wat = Wat("spear")
    body = f"""{wat.user()} (drop {wat.set("tool_arena_ptr", 40960)}) (drop {wat.set("tool_arena_len", 8192)})
    (drop {wat.tool("sum")})
    (call $exit (i32.lt_s (call $cchat_send (local.get $fd) (i32.const 2)) (i32.const 1000))) (i32.const 0)"""
    guest = wat.build(
        body, more=SLOT, wasi='(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'
    ).replace('(func $run (export "run")', '(func (export "_start") (drop (call $run))) (func $run')
    async with stage() as opened:
        played = await opened.play(guest, model=calling('{"sum":42}', name="sum"), isolation=isolation, mode=mode)
    assert played.answer == 0
    assert played.results == ['{"sum":42}']


async def test_more_room_is_offered_once_and_only_once() -> None:
    """A tool whose output is larger than the first buffer runs twice, and gets what it asked for."""
    big = """(global $runs (mut i32) (i32.const 0))
  (func $t (type $tool)
    (global.set $runs (i32.add (global.get $runs) (i32.const 1)))
    (if (i32.lt_u (i32.load (local.get 3)) (i32.const 20000))
      (then (i32.store (local.get 3) (i32.const 20000)) (return (i32.const -28))))
    (memory.fill (local.get 2) (i32.add (i32.const 48) (global.get $runs)) (i32.const 20000))
    (i32.store (local.get 3) (i32.const 20000)) (i32.const 0))"""
    async with stage() as opened:
        played = await opened.play(with_tool(big), model=calling("{}"))
    assert played.results == ["2" * 20_000]


async def test_a_tool_by_the_name_of_its_export_needs_no_table() -> None:
    """For languages without function pointers."""
    wat = Wat()
    run = f"{wat.user()} (drop {wat.tool(offset=-1)}) (call $cchat_send (local.get $fd) (i32.const 2))"
    more = ALLOCATOR + ECHO.replace("$t (type", '$t (export "tool_t") (type')
    async with stage() as opened:
        played = await opened.play(wat.build(run, more=more, table=""), model=calling('{"x":1}'))
    assert played.results == ['{"x":1}']


async def test_only_granted_server_tools_are_offered() -> None:
    """A guest gets what its operator granted, run by Treadle; all else is not there for it."""
    tools = [
        ServerTool(spec=ToolSpec(name=name), policy=ToolPolicy(effect="read")) for name in ("get_time", "drop_all")
    ]
    model = calling("{}", name="get_time")
    async with stage() as opened:
        played = await opened.play(with_tool(), model=model, tools=tools, grants=("get_*",))
    assert [tool.name for tool in model.plans[0].tools] == ["t", "get_time"]
    assert played.results == ["from the server"]


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({}, ["get_time", "mcp__a__look", "mcp__b__look"]),
        ({"mcp.enabled": True}, ["get_time", "mcp__a__look", "mcp__b__look"]),
        ({"mcp.enabled": False}, ["get_time"]),
        ({"mcp.server_ids": ["b"]}, ["get_time", "mcp__b__look"]),
        ({"mcp.tool_allowlist": ["mcp__a__look"]}, ["get_time", "mcp__a__look"]),
        ({"mcp.tool_denylist": ["look"]}, ["get_time"]),
        ({"mcp.server_ids": ["a", "c"], "mcp.tool_denylist": ["mcp__b__look"]}, ["get_time", "mcp__a__look"]),
    ],
)
@WHERE
async def test_a_guest_may_narrow_the_mcp_tools_that_it_was_granted(
    isolation: Isolation, settings: dict[str, object], offered: list[str]
) -> None:
    """By server and by tool, never beyond the grant; a setting that is taken is obeyed."""
    sources = {"get_time": "python", "mcp__a__look": "mcp:a", "mcp__b__look": "mcp:b", "mcp__c__look": "mcp:c"}
    tools = [
        ServerTool(spec=ToolSpec(name=name), policy=ToolPolicy(effect="read"), source=source)
        for name, source in sources.items()
    ]
    wat, model = Wat(), FakeModel(say("done"))
    run = f"{wat.user()} {' '.join(f'(drop {wat.set(key, value)})' for key, value in settings.items())}"
    code = wat.build(f"{run} (call $cchat_send (local.get $fd) (i32.const 2))")
    async with stage() as opened:
        await opened.play(code, model=model, tools=tools, grants=("get_*", "mcp__[ab]__*"), isolation=isolation)
    assert [tool.name for tool in model.plans[0].tools] == offered


async def test_a_guest_reads_its_input_and_prints() -> None:
    """Standard input is what the host hands in; what is printed is heard."""
    wasi = "".join(
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} (param i32 i32 i32 i32) (result i32)))'
        for name in ("fd_read", "fd_write")
    )
    run = """(i32.store (i32.const 0) (i32.const 4096)) (i32.store (i32.const 4) (i32.const 100))
    (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))"""
    async with stage() as opened:
        played = await opened.play(Wat().build(run, wasi=wasi), stdin="Grüße".encode())
    assert [(said.stream, said.text) for said in played.said] == [("stdout", "Grüße")]


async def test_what_guests_did_wrong_is_said_in_words() -> None:
    """`cchat_error` has the sentence behind the last number."""
    wat = Wat()
    run = f"""{wat.user()} (drop (call $cchat_write_msg (local.get $fd) {wat.text("king")} {wat.text("x")}))
    (i32.store (i32.const 64) (i32.const 1000)) (drop (call $cchat_error (i32.const 70000) (i32.const 64)))
    (call $log (i32.const 3) (i32.const 70000) (i32.load (i32.const 64)))"""
    async with stage() as opened:
        played = await opened.play(wat.build(run))
    assert played.said[0].text == "the role 'king' is not one of assistant, developer, system, user"


async def test_guests_that_fail_at_once_never_see_each_others_end() -> None:
    """Many guests at a time, each with an exit code of its own: every one gets its own."""
    exits = '(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'
    guests = [Wat().build(f"(call $exit (i32.const {code})) (i32.const 0)", wasi=exits) for code in range(20)]
    guests += [Wat().build("unreachable")] * 20
    wanted = [*range(20), *["trap"] * 20]
    async with stage() as opened:
        for _ in range(3):
            played = await asyncio.gather(*(opened.play(guest, limits=SandboxLimits()) for guest in guests))
            assert [each.answer for each in played] == wanted
