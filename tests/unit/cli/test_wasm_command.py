"""`treadle wasm`: run, check, new and build."""

from pathlib import Path

import pytest

from guests.test_wasi import opening
from guests.wat import Wat, with_tool
from places import needs_programs
from treadle.cli.main import main
from treadle.cli.wasm_check import inspect_guest
from treadle.cli.wasm_guest_kit import BUILDERS, STARTERS, starter
from treadle.wasm.cchat_abi import calls_of
from treadle.wasm.engine.wasmtime_engine import load_wasmtime
from treadle.wasm.guest_pool import read_guest

ROOT = Path(__file__).parents[3]


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
    assert "--export-table" in " ".join(inspect_guest(wasm).hints)


def test_check_passes_a_good_guest(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, and what it is."""
    Path("guest.wat").write_text(with_tool())
    assert main(["wasm", "check", "guest.wat"]) == 0
    assert "session guest" in capsys.readouterr().out


def test_new_writes_a_guest_that_runs_and_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The template is a working guest; a file that is there stays."""
    assert main(["wasm", "new", "first.wat"]) == 0
    assert main(["wasm", "run", "first.wat", "-m", "demo"]) == 0
    assert "demo model" in capsys.readouterr().err
    Path("first.wat").write_text("mine")
    assert main(["wasm", "new", "first.wat"]) == 1
    assert Path("first.wat").read_text() == "mine"


def test_the_repository_shows_the_files_of_the_kit_and_no_copies() -> None:
    """include/ and examples/guests point into the package: there is one source of each file."""
    kit = ROOT / "src" / "treadle" / "cli" / "starters"
    shown = [*(ROOT / "include").iterdir(), *(ROOT / "examples" / "guests").glob("*.*[!d]")]
    assert {file.resolve().parent for file in shown} == {kit}
    assert {file.resolve().name for file in shown} == {file.name for file in kit.iterdir()}
    wanted = {name for each in STARTERS.values() for name in (each.file, *each.beside)} | {"tools.json"}
    assert {file.name for file in kit.iterdir()} == wanted


def test_the_header_declares_every_host_call() -> None:
    """What a guest may import from `treadle` is what its author can include."""
    header = starter("treadle_cchat.h")
    assert [call.name for call in calls_of("treadle") if f"TREADLE_IMPORT({call.name})" not in header] == []


@pytest.mark.parametrize(("file", "is_tools"), [(f"guest{suffix}", tools) for suffix, tools in STARTERS])
def test_new_writes_what_a_guest_needs_and_says_what_comes_next(
    file: str, is_tools: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guest, what lies beside it, and the commands that follow; a component needs no flag."""
    needs_flag = is_tools and (Path(file).suffix, False) in STARTERS
    assert main(["wasm", "new", *(["--tools"] if needs_flag else []), file]) == 0
    chosen = STARTERS[Path(file).suffix, is_tools]
    assert Path(file).read_text() == starter(chosen.file)
    assert all(Path(name).exists() for name in chosen.beside)
    said = capsys.readouterr().out
    assert ("treadle wasm build" in said) == (not file.endswith(".wat"))
    assert "treadle wasm check" in said


def test_new_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """For an ending that it does not know, a kind that a language has not, and a folder that is not there."""
    assert main(["wasm", "new", "first.rs"]) == 1
    assert "there is .c, .wat, .ts" in capsys.readouterr().err
    assert main(["wasm", "new", "--tools", "first.ts"]) == 1
    assert "there is .c, .wat, .js, .py" in capsys.readouterr().err
    assert main(["wasm", "new", "nowhere/first.c"]) == 1
    assert "no folder nowhere" in capsys.readouterr().err


def test_a_tool_of_a_guest_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    """Its output is printed; arguments that do not fit, and tools that are not there, are refused as for a model."""
    assert main(["wasm", "new", "--tools", "words.wat"]) == 0
    capsys.readouterr()
    text = "one two  three four five six seven eight nine ten eleven"
    assert main(["wasm", "call", "words.wat", "count_words", f'{{"text":"{text}"}}']) == 0
    assert capsys.readouterr().out == '{"words":11}\n'
    assert main(["wasm", "call", "words.wat", "count_words", '{"txt":""}']) == 1
    assert "did you mean" in capsys.readouterr().out
    assert main(["wasm", "call", "words.wat", "count"]) == 1
    assert "there is count_words" in capsys.readouterr().err


def test_check_wants_a_tool_guest_described(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the file beside it nobody knows what its tools take."""
    assert main(["wasm", "new", "--tools", "words.wat"]) == 0
    assert main(["wasm", "check", "words.wat"]) == 0
    Path("words.wat.json").unlink()
    assert main(["wasm", "check", "words.wat"]) == 1
    assert "words.wat.json" in capsys.readouterr().out


def test_check_looks_into_components() -> None:
    """What it exports and imports is named; an import that is not there is a problem, WASI one with a way out."""
    component = '(component (import "wasi:cli/environment@0.2.0" (instance)) (import "x:y/z" (instance)))'
    finding = inspect_guest(bytes(load_wasmtime().wat2wasm(component)))
    assert finding.kind == "component (tools)"
    assert finding.problems == [
        "it exports no `describe`",
        "it exports no `call`",
        "it imports x:y/z, which is not there",
        "it imports WASI, which is there only with a grant",
    ]
    assert "--stub-wasi" in finding.hints[0]


def test_a_guest_reads_a_folder_that_a_flag_grants(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The flag puts it into a process of its own; in a thread it is refused, and so is a folder that is not there."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "note").write_text("well")
    Path("guest.wat").write_text(opening("note"))
    assert main(["wasm", "run", "guest.wat"]) == 52
    assert main(["wasm", "run", "guest.wat", "--read", "in"]) == 0
    assert capsys.readouterr().out == "well"
    assert main(["wasm", "run", "guest.wat", "--read", "in", "--isolation", "thread"]) == 2
    assert "process of its own" in capsys.readouterr().err
    assert main(["wasm", "run", "guest.wat", "--read", "nowhere"]) == 2
    assert "no folder nowhere" in capsys.readouterr().err


def test_a_configured_grant_is_read_and_refused_in_a_thread(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders are named from where the file stands; the mistake names the key and the value that helps."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "note").write_text("well")
    Path("guest.wat").write_text(opening("note"))
    lines = ["[[guest]]", 'name = "g"', 'path = "guest.wat"', 'wasi_read = ["in:/data"]']
    Path("treadle.toml").write_text("\n".join([*lines, 'isolation = "process"']))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["wasm", "run", "g", "--config", "../treadle.toml"]) == 0
    assert capsys.readouterr().out == "well"
    monkeypatch.chdir(tmp_path)
    Path("treadle.toml").write_text("\n".join(lines))
    assert main(["wasm", "run", "g"]) == 2
    said = capsys.readouterr().err
    assert "guest[0].isolation" in said
    assert 'wasi_read needs isolation = "process"' in said


@pytest.mark.parametrize("suffix", BUILDERS)
def test_build_without_a_compiler_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    """The hint is the command that helps."""
    Path(f"a{suffix}").write_text("int main(void) { return 0; }")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda *_args, **_more: None)
    assert main(["wasm", "build", f"a{suffix}"]) == 2
    assert BUILDERS[suffix].hint in capsys.readouterr().err


@needs_programs
def test_build_runs_the_compiler_that_lies_beside_and_says_when_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A command of npm is found in node_modules above the file; what it answers is the answer."""
    folder = Path("node_modules/.bin")
    folder.mkdir(parents=True)
    (folder / "asc").write_text("#!/bin/sh\necho compiling $1\ntest $1 = good.ts\n")
    (folder / "asc").chmod(0o755)
    Path("src").mkdir()
    for name, code in (("good.ts", 0), ("bad.ts", 1)):
        (Path("src") / name).write_text("")
        assert main(["wasm", "build", f"src/{name}"]) == code
    said = capsys.readouterr()
    assert "wrote src/good.wasm" in said.out
    assert "bad.ts could not be built" in said.err
    assert main(["wasm", "build", "src/missing.ts"]) == 1
    assert main(["wasm", "build", "node_modules/.bin/asc"]) == 1


@needs_programs
def test_build_says_how_to_install_a_compiler_that_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    """A command of pip or npm may be left behind by an interpreter that has gone."""
    command = Path("node_modules/.bin/asc")
    command.parent.mkdir(parents=True)
    command.write_text(f"#!{Path.cwd() / 'gone'}\n")
    command.chmod(0o755)
    Path("a.ts").write_text("")
    assert main(["wasm", "build", "a.ts"]) == 1
    said = capsys.readouterr().err
    assert "a.ts could not be built" in said
    assert "if its compiler does not start: npm install assemblyscript" in said


def test_bytes_that_are_no_text_are_no_wat() -> None:
    """Only a .wat file is read as text."""
    Path("x.wasm").write_bytes(b"\0asm")
    assert read_guest("x.wasm") == b"\0asm"
