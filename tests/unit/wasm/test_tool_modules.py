"""Tool guests as ordinary tools: described, validated, run in a fresh instance, failing as results."""

import json
from pathlib import Path

import pytest

from guests.wat import ALLOCATOR, ECHO, TOOL_TYPE
from treadle.core.errors import ConfigError, NotFound
from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.runtime import SystemClock
from treadle.tools import ToolRegistry, ToolRunner
from treadle.wasm.engine.compiler import Compiler
from treadle.wasm.engine.guest_limits import Isolation, SandboxLimits
from treadle.wasm.execution.tool_call import ToolCall
from treadle.wasm.guest_pool import GuestModule, GuestPool
from treadle.wasm.tool_modules import ToolGuest

NAMED = ECHO.replace("$t (type", '$t (export "tool_echo") (type')
COUNTING = """(global $n (mut i32) (i32.const 48))
  (func (export "tool_echo") (type $tool)
    (global.set $n (i32.add (global.get $n) (i32.const 1)))
    (i32.store8 (local.get 2) (global.get $n)) (i32.store (local.get 3) (i32.const 1)) (i32.const 0))"""
SPECS = [{"name": "echo", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}]
DESCRIBED = json.dumps(SPECS).replace('"', '\\"')
DESCRIBE = f"""(data (i32.const 512) "{DESCRIBED}")
  (func (export "describe") (type $tool)
    (memory.copy (local.get 2) (i32.const 512) (i32.const {len(json.dumps(SPECS))}))
    (i32.store (local.get 3) (i32.const {len(json.dumps(SPECS))})) (i32.const 0))"""
LIMITS = SandboxLimits(cpu_s=0.2, wall_s=5)


def written(folder: Path, body: str, *, schema: object = SPECS) -> str:
    """Write a tool guest and, unless it describes itself, its schemas; return its path."""
    path = folder / "tools.wat"
    path.write_text(f'(module {TOOL_TYPE} (memory (export "memory") 2) {ALLOCATOR} {body})')
    if schema is not None:
        (folder / "tools.wat.json").write_text(json.dumps(schema))
    return str(path)


def guest(path: str, **fields: object) -> tuple[ToolGuest, GuestPool]:
    """Return a tool guest that is compiled here."""
    quarters = GuestPool(Compiler(in_child=False))
    return ToolGuest(quarters, GuestModule(name="g", path=path, kind="tools", limits=LIMITS, **fields)), quarters


async def run(tools: ToolGuest, arguments: str) -> Outcome:
    """Run the tool as a run's call would."""
    runner = ToolRunner(ToolRegistry(tools.tools()), clock=SystemClock())
    try:
        call = CallItem(call_id="c", name="echo", arguments=arguments)
        return await runner.run(call, CallContext(run_id="r"))
    finally:
        runner.close()


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_an_export_is_a_tool_of_the_registry(tmp_path: Path, isolation: Isolation) -> None:
    """It is validated, run and written as every other tool; its policy is what the operator configured."""
    tools, quarters = guest(written(tmp_path, NAMED), isolation=isolation, effect="read", approval="always")
    [tool] = tools.tools()
    assert (tool.declared.source, tool.policy.effect, tool.policy.approval) == ("wasm:g", "read", "always")
    assert tool.why["effect"] == tool.why["approval"] == "[[guest]] g"
    ran = await run(tools, '{"x":1}')
    assert (ran.text, ran.sandbox) == ('{"x":1}', {"thread": "wasm", "process": "wasm-process"}[isolation])
    assert (await run(tools, '{"x":"no"}')).rc == "invalid_arguments"
    await quarters.close()


async def test_nothing_of_one_call_is_there_for_the_next(tmp_path: Path) -> None:
    """Every call gets a fresh instance: a counter never gets past one."""
    tools, _ = guest(written(tmp_path, COUNTING))
    outcomes = [await tools.call(ToolCall(name="echo", arguments="{}")) for _ in range(3)]
    assert [outcome.text for outcome in outcomes] == ["1", "1", "1"]


async def test_a_guest_may_describe_itself(tmp_path: Path) -> None:
    """Without a file beside it the guest is asked what its tools are, also from the thread of a loop."""
    tools, _ = guest(written(tmp_path, NAMED + DESCRIBE, schema=None))
    assert [spec.name for spec in tools.specs()] == ["echo"]


@pytest.mark.parametrize(
    ("body", "rc", "words"),
    [
        ("unreachable", "failed", "stopped (trap)"),
        ("(loop br 0) (i32.const 0)", "timeout", "stopped (timeout)"),
        ("(i32.const -5)", "failed", "tool rc: -5"),
    ],
)
async def test_a_tool_that_fails_is_a_result(tmp_path: Path, body: str, rc: str, words: str) -> None:
    """The model reads why; the next call is as well as ever."""
    tools, _ = guest(written(tmp_path, f'(func (export "tool_echo") (type $tool) {body})'))
    outcome = await run(tools, "{}")
    assert outcome.rc == rc
    assert words in outcome.text


@pytest.mark.parametrize(
    ("body", "schema", "words"),
    [
        (NAMED, None, "neither `describe` nor the file"),
        (NAMED, [{"name": "other", "parameters": {}}], "exports no tool_other"),
        (NAMED, {"hello": 1}, "describes no tools"),
        (NAMED, [{"name": "a b", "parameters": {}}], "cannot be one"),
        (NAMED + '(func (export "describe") (type $tool) unreachable)', None, "was stopped"),
    ],
)
def test_what_cannot_be_offered_is_a_mistake_of_the_configuration(
    tmp_path: Path, body: str, schema: object, words: str
) -> None:
    """It names the guest and what is missing, when the process starts."""
    tools, _ = guest(written(tmp_path, body, schema=schema))
    with pytest.raises(ConfigError, match=words):
        tools.specs()


def test_a_guest_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path is in the message."""
    with pytest.raises(NotFound, match=r"nowhere\.wasm"):
        guest(str(tmp_path / "nowhere.wasm"))
