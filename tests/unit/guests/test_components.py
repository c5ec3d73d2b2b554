"""Components as tools: strings in and out, a fresh instance, the same limits as every guest."""

import json
from pathlib import Path

import pytest

from treadle.guests.modules import ToolGuest
from treadle.guests.quarters import GuestModule, Quarters
from treadle.guests.sandbox.compiler import Compiler
from treadle.guests.sandbox.limits import Isolation, SandboxLimits
from treadle.guests.stage.toolrun import ToolCall

SPECS = json.dumps([{"name": "echo", "parameters": {"type": "object"}}])


def component(call: str) -> str:
    """Return a component whose `call` has this body; it leaves the address of its result."""
    data = SPECS.replace('"', '\\"')
    return f"""(component
  (core module $m
    (memory (export "memory") 2)
    (global $heap (mut i32) (i32.const 8192))
    (data (i32.const 1024) "{data}")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $p i32)
      (local.set $p (global.get $heap))
      (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -8))))
      (local.get $p))
    (func (export "describe") (result i32)
      (i32.store (i32.const 16) (i32.const 1024)) (i32.store (i32.const 20) (i32.const {len(SPECS)})) (i32.const 16))
    (func (export "call") (param i32 i32 i32 i32) (result i32) {call}))
  (core instance $i (instantiate $m))
  (func (export "describe") (result string)
    (canon lift (core func $i "describe") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (func (export "call") (param "name" string) (param "arguments" string) (result (result string (error string)))
    (canon lift (core func $i "call") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"""


def result(tag: int) -> str:
    """Give the arguments back, as a success (0) or as an error (1)."""
    return f"""(i32.store8 (i32.const 32) (i32.const {tag})) (i32.store (i32.const 36) (local.get 2))
      (i32.store (i32.const 40) (local.get 3)) (i32.const 32)"""


def guest(folder: Path, call: str, isolation: Isolation = "thread") -> tuple[ToolGuest, Quarters]:
    """Return a component as a tool guest."""
    path = folder / "tool.wat"
    path.write_text(component(call))
    quarters = Quarters(Compiler(in_child=False))
    limits = SandboxLimits(cpu_s=0.2, wall_s=10)
    return ToolGuest(
        quarters, GuestModule(name="c", path=str(path), kind="tools", limits=limits, isolation=isolation)
    ), quarters


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_a_component_describes_itself_and_is_called(tmp_path: Path, isolation: Isolation) -> None:
    """Its name and arguments go in as strings; what comes out is what the model reads."""
    tools, quarters = guest(tmp_path, result(0), isolation)
    assert [spec.name for spec in tools.specs()] == ["echo"]
    outcome = await tools.call(ToolCall(name="echo", arguments='{"a":"ü"}'))
    assert (outcome.text, outcome.rc) == ('{"a":"ü"}', "ok")
    await quarters.close()


@pytest.mark.parametrize(
    ("call", "rc", "words"),
    [
        (result(1), "failed", "why not"),
        ("unreachable", "failed", "stopped (trap)"),
        ("(loop br 0) (i32.const 0)", "timeout", "stopped (timeout)"),
        ("(i32.const -4)", "failed", "stopped (trap)"),
        ("(i32.store8 (i32.const 32) (i32.const 9)) (i32.const 32)", "failed", "stopped (trap)"),
        ("(drop (memory.grow (i32.const 60000))) (i32.load (i32.const -4))", "failed", "stopped (trap)"),
    ],
    ids=["an error of its own", "a trap", "a loop", "a result out of bounds", "a wrong tag", "a bomb"],
)
async def test_a_component_that_fails_is_a_result(tmp_path: Path, call: str, rc: str, words: str) -> None:
    """An error of its own, and everything that it must not do."""
    tools, _ = guest(tmp_path, call)
    outcome = await tools.call(ToolCall(name="echo", arguments="why not"))
    assert outcome.rc == rc
    assert words in outcome.text


async def test_an_output_over_the_bound_is_refused(tmp_path: Path) -> None:
    """The size is in the words."""
    tools, _ = guest(tmp_path, result(0))
    outcome = await tools.call(ToolCall(name="echo", arguments="x" * 300, output_bytes_max=256))
    assert outcome.rc == "too_large"
    assert "300 bytes" in outcome.text
