"""Compiled code: from a child process, kept on disk, and never loaded if a byte of it was changed."""

import hmac
import os
import time
from pathlib import Path

import msgspec
import pytest

from guests.bombs import BOMBS
from treadle.wasm.engine import compiler as compiler_module
from treadle.wasm.engine.compiler import BadGuest, CompileLimits, Compiler, child_environment
from treadle.wasm.engine.wasmtime_engine import EngineSpec, load_wasmtime

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


SHORT = CompileLimits(cpu_s=1, wall_s=30, address_bytes_max=4_294_967_296)
TRIED = ("a huge function", "deep nesting")
"""Bombs that the default suite sets off; the others are much like them."""
WORDS = r"(takes more than 1 s of CPU|more than \d+ MiB)"
SMALL = CompileLimits(cpu_s=30, wall_s=60, address_bytes_max=805_306_368)


@pytest.mark.parametrize(
    ("bomb", "limits", "words"),
    [
        *(
            pytest.param(bomb, SHORT, WORDS, id=bomb, marks=() if bomb in TRIED else pytest.mark.exhaustive)
            for bomb in BOMBS
        ),
        ("many locals", SMALL, "more than 768 MiB of memory"),
    ],
)
def test_a_bomb_goes_off_in_the_child_and_is_refused(bomb: str, limits: CompileLimits, words: str) -> None:
    """Compiling cannot be interrupted, so the system ends the child; this process goes on and compiles the next."""
    compiler = Compiler(limits=limits)
    began = time.monotonic()
    with pytest.raises(BadGuest, match=words):
        compiler.compile(BOMBS[bomb](), SPEC)
    assert time.monotonic() - began < limits.wall_s
    assert compiler.compile(wasm(), SPEC).code


def test_a_compiler_that_only_waits_is_ended_by_the_clock_on_the_wall() -> None:
    """A machine that gives the child no time does not hold the caller for ever."""
    with pytest.raises(BadGuest, match=r"took longer than 0\.001 s"):
        Compiler(limits=msgspec.structs.replace(SHORT, wall_s=0.001)).compile(wasm(), SPEC)


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
    again = Compiler(tmp_path, in_child=False)
    compiled = again.compile(wasm(), SPEC)
    assert not compiled.was_cached
    assert [export.name for export in again.load(compiled, SPEC).exports] == ["memory"]
    assert Compiler(tmp_path, in_child=False).compile(wasm(), SPEC).was_cached, "it was written anew"


def evil() -> bytes:
    """Return compiled code of another module, as somebody who can write to the folder would put there."""
    other = bytes(load_wasmtime().wat2wasm('(module (memory (export "memory") 1) (func (export "evil")))'))
    return Compiler(in_child=False).compile(other, SPEC).code


@pytest.mark.parametrize("mac", ["none", "of another key", "of another file", "cut short", "empty"])
def test_code_that_somebody_else_put_there_is_never_loaded(tmp_path: Path, mac: str) -> None:
    """Valid compiled code without the folder's own hash over it, and for this very module, is compiled again."""
    Compiler(tmp_path, in_child=False).compile(wasm(), SPEC)
    [file] = tmp_path.glob("*.cwasm")
    key = (tmp_path / "key").read_bytes()
    forged = {
        "none": evil(),
        "of another key": hmac.digest(bytes(32), file.stem.encode() + b"\0" + evil(), "sha256") + evil(),
        "of another file": hmac.digest(key, b"other\0" + evil(), "sha256") + evil(),
        "cut short": file.read_bytes()[:40],
        "empty": b"",
    }
    file.write_bytes(forged[mac])
    compiler = Compiler(tmp_path, in_child=False)
    compiled = compiler.compile(wasm(), SPEC)
    assert not compiled.was_cached
    assert [export.name for export in compiler.load(compiled, SPEC).exports] == ["memory"]


def test_a_key_that_is_gone_only_costs_a_compilation(tmp_path: Path) -> None:
    """A new key is made; what the old one signed is not taken."""
    Compiler(tmp_path, in_child=False).compile(wasm(), SPEC)
    (tmp_path / "key").unlink()
    assert not Compiler(tmp_path, in_child=False).compile(wasm(), SPEC).was_cached
    (tmp_path / "key").write_bytes(b"")
    assert not Compiler(tmp_path, in_child=False).compile(wasm(), SPEC).was_cached


def test_only_so_much_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not asked for the longest goes first."""
    monkeypatch.setattr(compiler_module, "KEPT_MAX", 2)
    wats = [f'(module (memory (export "memory") {pages}))' for pages in (1, 2, 3)]
    codes = [bytes(load_wasmtime().wat2wasm(wat)) for wat in wats]
    for age, code in zip((30, 20, 10), codes, strict=True):
        before = set(tmp_path.glob("*.cwasm"))
        Compiler(tmp_path, in_child=False).compile(code, SPEC)
        [made] = set(tmp_path.glob("*.cwasm")) - before
        os.utime(made, (time.time() - age, time.time() - age))
    assert [Compiler(tmp_path, in_child=False).compile(code, SPEC).was_cached for code in codes[1:]] == [True, True]
    assert len(list(tmp_path.glob("*.cwasm"))) == 2


def test_a_folder_that_takes_nothing_only_makes_it_slower(tmp_path: Path) -> None:
    """A file where the folder should be is no reason not to run a guest."""
    (tmp_path / "cache").write_text("")
    compiler = Compiler(tmp_path / "cache", in_child=False)
    assert compiler.load(compiler.compile(wasm(), SPEC), SPEC)


def test_code_of_another_spec_is_not_taken(tmp_path: Path) -> None:
    """The way of compiling is part of the name."""
    Compiler(tmp_path, in_child=False).compile(wasm(), SPEC)
    assert not Compiler(tmp_path, in_child=False).compile(wasm(), EngineSpec(mode="fast")).was_cached


def test_children_get_no_key_of_any_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment only what a Python needs to start is handed on."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "sk-secret" not in child_environment().values()
    assert set(child_environment()) <= set(os.environ)
