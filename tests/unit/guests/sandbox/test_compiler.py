"""Compiled code: from a child process, kept on disk, and never loaded if a byte of it was changed."""

import os
from pathlib import Path

import pytest

from treadle.guests.sandbox.compiler import BadGuest, Compiler, child_environment
from treadle.guests.sandbox.engine import EngineSpec, load_wasmtime

SPEC = EngineSpec()


def wasm() -> bytes:
    """Return a small module."""
    return bytes(load_wasmtime().wat2wasm('(module (memory (export "memory") 1))'))


def test_a_child_process_compiles_and_says_why_it_does_not() -> None:
    """The code of the child runs here; what it refuses is a bad guest with its reason."""
    compiler = Compiler()
    compiled = compiler.compile(wasm(), SPEC)
    assert [export.name for export in compiler.load(compiled, SPEC).exports] == ["memory"]
    with pytest.raises(BadGuest, match="unexpected end"):
        compiler.compile(b"\0asm\1\0\0\0\1", SPEC)


def test_what_was_compiled_once_is_found_again(tmp_path: Path) -> None:
    """In memory by the same compiler, on disk by the next; the folder is its owner's alone."""
    first = Compiler(tmp_path / "cache", in_child=False)
    assert not first.compile(wasm(), SPEC).was_cached
    assert first.compile(wasm(), SPEC).was_cached
    assert Compiler(tmp_path / "cache", in_child=False).compile(wasm(), SPEC).was_cached
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "cache" / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_file_that_was_changed_is_thrown_away(tmp_path: Path, place: int) -> None:
    """One flipped byte, in the hash or in the code, is enough."""
    Compiler(tmp_path, in_child=False).compile(wasm(), SPEC)
    [file] = tmp_path.glob("*.cwasm")
    raw = bytearray(file.read_bytes())
    raw[place] ^= 1
    file.write_bytes(raw)
    compiled = Compiler(tmp_path, in_child=False).compile(wasm(), SPEC)
    assert not compiled.was_cached


def test_code_of_another_spec_is_not_taken(tmp_path: Path) -> None:
    """The way of compiling is part of the name."""
    Compiler(tmp_path, in_child=False).compile(wasm(), SPEC)
    assert not Compiler(tmp_path, in_child=False).compile(wasm(), EngineSpec(mode="fast")).was_cached


def test_children_get_no_key_of_any_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment only what a Python needs to start is handed on."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "sk-secret" not in child_environment().values()
    assert set(child_environment()) <= set(os.environ)
