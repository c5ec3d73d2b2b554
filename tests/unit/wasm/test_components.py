"""Components as tools: strings in and out, a fresh instance, the same limits as every guest."""

import json
from pathlib import Path

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.wasm.engine.compiler import Compiler
from treadle.wasm.engine.guest_limits import Isolation, SandboxLimits
from treadle.wasm.engine.wasi_grants import WasiGrant
from treadle.wasm.engine.wasmtime_engine import EngineSpec, load_wasmtime
from treadle.wasm.execution.tool_call import ToolCall
from treadle.wasm.guest_pool import GuestModule, GuestPool
from treadle.wasm.tool_modules import ToolGuest

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


def guest(folder: Path, call: str, isolation: Isolation = "thread") -> tuple[ToolGuest, GuestPool]:
    """Return a component as a tool guest."""
    path = folder / "tool.wat"
    path.write_text(component(call))
    quarters = GuestPool(Compiler(in_child=False))
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


@pytest.mark.parametrize("name", ["wasi:cli/environment@0.2.0", "other:thing/here"])
def test_an_import_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    """Also WASI, which a component without a grant does not have; and the file that would help is named."""
    imported = f'(import "{name}" (instance (export "f" (func))))'
    path = tmp_path / "tool.wat"
    path.write_text(component(result(0)).replace("(component", f"(component {imported}", 1))
    tools = ToolGuest(GuestPool(Compiler(in_child=False)), GuestModule(name="c", path=str(path), kind="tools"))
    with pytest.raises(ConfigError, match=f"{name}.*not found") as raised:
        tools.specs()
    assert "tool.wat.json" in raised.value.message


async def test_a_component_gets_the_real_wasi_by_a_grant_only(tmp_path: Path) -> None:
    """The same component that is refused without one runs with it, in a process of its own."""
    imported = '(import "wasi:cli/environment@0.2.0" (instance (export "get-arguments" (func (result (list string))))))'
    path = tmp_path / "tool.wat"
    path.write_text(component(result(0)).replace("(component", f"(component {imported}", 1))
    (tmp_path / "tool.wat.json").write_text(SPECS)
    module = GuestModule(name="c", path=str(path), kind="tools", isolation="process")
    quarters = GuestPool(Compiler(in_child=False))
    refused = await ToolGuest(quarters, module).call(ToolCall(name="echo", arguments="hello"))
    assert "stopped (link)" in refused.text
    granted = msgspec.structs.replace(module, wasi=WasiGrant())
    assert (await ToolGuest(quarters, granted).call(ToolCall(name="echo", arguments="hello"))).text == "hello"
    with pytest.raises(ConfigError, match="process of its own"):
        ToolGuest(quarters, msgspec.structs.replace(granted, isolation="thread"))
    await quarters.close()


def test_a_component_of_several_memories_is_compiled(tmp_path: Path) -> None:
    """The engine's glue between the parts of a component has more than one, though no core module may."""
    inner = """(component $inner
    (core module $m (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
      (func (export "f") (param i32 i32) (result i32) (i32.store (i32.const 16) (local.get 0))
        (i32.store (i32.const 20) (local.get 1)) (i32.const 16)))
    (core instance $i (instantiate $m))
    (func (export "f") (param "text" string) (result string)
      (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"""
    outer = f"""(component {inner}
  (instance $inner (instantiate $inner))
  (core module $libc (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $libc (instantiate $libc))
  (core func $f (canon lower (func $inner "f") (memory (core memory $libc "memory"))
    (realloc (core func $libc "realloc"))))
  (core module $m (import "i" "f" (func (param i32 i32 i32))))
  (core instance (instantiate $m (with "i" (instance (export "f" (func $f)))))))"""
    wasm = bytes(load_wasmtime().wat2wasm(outer))
    compiler = Compiler()
    assert compiler.load(compiler.compile(wasm, EngineSpec()), EngineSpec())


async def test_an_output_over_the_bound_is_refused(tmp_path: Path) -> None:
    """The size is in the words."""
    tools, _ = guest(tmp_path, result(0))
    outcome = await tools.call(ToolCall(name="echo", arguments="x" * 300, output_bytes_max=256))
    assert outcome.rc == "too_large"
    assert "300 bytes" in outcome.text
