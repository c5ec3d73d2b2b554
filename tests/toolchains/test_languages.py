"""Every language of the kit: its first guest is begun, built, checked, and does what it says, in a clean folder."""

import json
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from toolchains import compilers
from toolchains.conftest import STEP_S, Treadle

ROOT = Path(__file__).parents[2]
ELEVEN = json.dumps({"text": "one two  three four five six seven eight nine ten eleven"})


def ten_minutes() -> list[list[str]]:
    """Return the commands of the ten minutes in docs/wasm.md."""
    text = (ROOT / "docs" / "wasm.md").read_text(encoding="utf-8")
    block = text.split("## Ten minutes", 1)[1].split("```console", 1)[1].split("```", 1)[0]
    lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


def test_the_ten_minutes_of_the_documents_are_as_they_say(treadle: Treadle) -> None:
    """Every command of the path goes well, word for word, and the last one prints the tool's answer."""
    commands = ten_minutes()
    assert commands[0] == ["pip", "install", "ziglang"], "which the test has done"
    assert [command[:3] for command in commands[1:]] == [
        ["treadle", "wasm", action] for action in ("new", "build", "check", "run")
    ]
    said = [treadle(*command[1:]).stdout for command in commands[1:]]
    assert "it would run" in said[2]
    assert "42" in json.loads(said[3])["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("file", "stream"), [("sum.c", "stdout"), ("sum.ts", "stderr"), ("hello.wat", "stderr")])
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_session_guest_holds_a_conversation(treadle: Treadle, file: str, stream: str, isolation: str) -> None:
    """The model calls the guest's own function where it has one, and the guest prints the answer."""
    treadle("wasm", "new", file)
    built = file
    if not file.endswith(".wat"):
        treadle("wasm", "build", file)
        built = f"{file.rpartition('.')[0]}.wasm"
    treadle("wasm", "check", built)
    done = treadle("wasm", "run", built, "-m", "demo", "--isolation", isolation)
    said = getattr(done, stream).removeprefix("[info] ")
    answer = json.loads(said)["choices"][0]["message"]["content"]
    assert ("42" if file.startswith("sum") else "Hello") in answer


@pytest.mark.parametrize("file", ["words.c", "words.wat", "words.js", "words.py"])
def test_a_tool_guest_is_called(treadle: Treadle, home: Path, file: str) -> None:
    """Alone, as a configured guest of its own process, and by a model through the gateway's own tools."""
    treadle("wasm", "new", "--tools", file)
    built = file if file.endswith(".wat") else f"{file.rpartition('.')[0]}.wasm"
    if built != file:
        treadle("wasm", "build", file)
    treadle("wasm", "check", built)
    assert json.loads(treadle("wasm", "call", built, "count_words", ELEVEN).stdout) == {"words": 11}
    wrong = treadle("wasm", "call", built, "count_words", '{"txt": ""}', code=1).stdout
    assert "did you mean" in wrong
    table = {"name": "words", "path": built, "kind": "tools", "effect": "read", "isolation": "process"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    (home / "treadle.toml").write_text("\n".join(["[[guest]]", *lines]))
    treadle("trust")
    assert json.loads(treadle("wasm", "call", "words", "count_words", ELEVEN).stdout) == {"words": 11}
    assert "wasm:words" in treadle("tools", "show", "count_words").stdout
    assert "**count_words** answered" in treadle("run", "-m", "demo", "Use count_words with hello").stdout


def test_a_component_of_the_other_javascript_engine_is_called(treadle: Treadle, home: Path, node_tools: Path) -> None:
    """componentize-js brings a larger engine; with its WASI features off it is a guest like the others."""
    treadle("wasm", "new", "words.js")
    off = ["stdio", "random", "clocks", "http", "fetch-event"]
    command = ["componentize-js", "words.js", "-w", "treadle_tool.wit", "-n", "tool", "-d", *off, "-o", "words.wasm"]
    env = compilers.environment(home, node_tools)
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=STEP_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(treadle("wasm", "call", "words.wasm", "count_words", ELEVEN).stdout) == {"words": 11}


def test_a_program_in_c_reads_a_granted_folder_and_no_other(treadle: Treadle, home: Path) -> None:
    """The C library's own files work on the real WASI, within what was granted."""
    (home / "in").mkdir()
    (home / "in" / "note").write_text("well")
    (home / "secret").write_text("s3cr")
    source = """#include <stdio.h>
int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "r");
  char text[16] = "";
  if (!file) return 3;
  printf("%s", fgets(text, sizeof text, file));
  return 0;
}
"""
    (home / "cat.c").write_text(source)
    treadle("wasm", "build", "cat.c")
    assert treadle("wasm", "run", "cat.wasm", "--read", "in", "--arg", "/in/note").stdout == "well"
    for path in ("/in/../secret", "/secret", "secret", str(home / "secret"), "/etc/passwd"):
        assert treadle("wasm", "run", "cat.wasm", "--read", "in", "--arg", path, code=3).stdout == ""


def test_the_wheel_has_the_kit(tmp_path: Path) -> None:
    """What `treadle wasm new` writes is read from the package, so it must be in what is installed."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=STEP_S, check=False)
    if "hatchling" in done.stderr:
        pytest.skip("hatchling is not to be had here")
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("treadle-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name.rpartition("/")[2] for name in archive.namelist() if "cli/starters/" in name}
    assert packed == {file.name for file in (ROOT / "src" / "treadle" / "cli" / "starters").iterdir()}
