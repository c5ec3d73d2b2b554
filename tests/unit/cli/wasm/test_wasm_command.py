"""`treadle wasm`: run, check, new and build."""

from pathlib import Path

import pytest

from guests.wat import Wat, with_tool
from treadle.cli.main import main
from treadle.cli.wasm.check import look
from treadle.cli.wasm.templates import HEADER, SESSION_C, TOOLS_C
from treadle.guests.quarters import read_guest
from treadle.guests.sandbox.engine import load_wasmtime

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_guest_runs_with_the_demo_model(capsys: pytest.CaptureFixture[str]) -> None:
    """What it returns is the exit code; what it logs is on stderr."""
    wat = Wat()
    run = f"(drop (call $log (i32.const 2) {wat.text('working')})) (i32.const 7)"
    Path("guest.wat").write_text(wat.build(run))
    assert main(["wasm", "run", "guest.wat"]) == 7
    assert "[info] working" in capsys.readouterr().err


def test_a_guest_that_is_stopped_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """The code of the stop and a sentence, and exit code 1."""
    Path("guest.wat").write_text(Wat().build("unreachable"))
    assert main(["wasm", "run", "guest.wat"]) == 1
    assert "guest was stopped (trap)" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Also when it might have been the name of a configured guest."""
    assert main(["wasm", "run", "missing.wasm"]) == 1
    assert "missing.wasm" in capsys.readouterr().err


def test_check_finds_what_would_keep_a_guest_from_running(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong import and a missing memory are problems; a forgotten table is a hint."""
    Path("guest.wat").write_text('(module (import "env" "f" (func)) (func (export "run")))')
    assert main(["wasm", "check", "guest.wat"]) == 1
    said = capsys.readouterr().out
    assert "it imports env.f" in said
    assert "no memory" in said
    wasm = bytes(load_wasmtime().wat2wasm(Wat().build("(i32.const 0)", table="")))
    assert "--export-table" in " ".join(look(wasm).hints)


def test_check_passes_a_good_guest(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, and what it is."""
    Path("guest.wat").write_text(with_tool())
    assert main(["wasm", "check", "guest.wat"]) == 0
    assert "session guest" in capsys.readouterr().out


def test_new_writes_a_guest_that_runs_and_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The template is a working guest; a file that is there stays."""
    assert main(["wasm", "new", "first.wat"]) == 0
    assert main(["wasm", "run", "first.wat"]) == 0
    assert "hello from a guest" in capsys.readouterr().err
    assert main(["wasm", "new", "first.wat"]) == 1
    assert main(["wasm", "new", "first.rs"]) == 1


def test_the_kit_is_what_the_repository_shows() -> None:
    """The header and the examples are the same bytes in the package and in the repository."""
    assert (ROOT / "include" / "treadle_cchat.h").read_text() == HEADER
    assert (ROOT / "examples" / "guests" / "sum.c").read_text() == SESSION_C
    assert (ROOT / "examples" / "guests" / "words.c").read_text() == TOOLS_C


def test_build_without_a_compiler_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hint is the command that helps."""
    Path("a.c").write_text("int main(void) { return 0; }")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["wasm", "build", "a.c"]) == 2
    assert "pip install ziglang" in capsys.readouterr().err


def test_bytes_that_are_no_text_are_no_wat() -> None:
    """Only a .wat file is read as text."""
    Path("x.wasm").write_bytes(b"\0asm")
    assert read_guest("x.wasm") == b"\0asm"
