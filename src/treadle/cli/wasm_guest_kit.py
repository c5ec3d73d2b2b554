"""The guest kit: creates starter projects for WASM guests, and builds them with their language's compiler.

The first guests are the files of `starters`, which include/ and examples/guests of the repository only point to.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import msgspec

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError, NotFound, RequestError

BUILD_S = 600
HEADER, WORLD = "treadle_cchat.h", "treadle_tool.wit"


class Starter(msgspec.Struct, frozen=True, kw_only=True):
    """A starter project: its file, the files it needs beside it, and whether those describe its tools."""

    file: str
    beside: tuple[str, ...] = ()
    described: bool = False


STARTERS: dict[tuple[str, bool], Starter] = {
    (".c", False): Starter(file="session.c", beside=(HEADER,)),
    (".c", True): Starter(file="tools.c", beside=(HEADER,), described=True),
    (".wat", False): Starter(file="session.wat"),
    (".wat", True): Starter(file="tools.wat", described=True),
    (".ts", False): Starter(file="session.ts"),
    (".js", True): Starter(file="tools.js", beside=(WORLD,)),
    (".py", True): Starter(file="tools.py.txt", beside=(WORLD,)),
}
"""By the ending of the file and whether it is to be a tool guest; JavaScript and Python make components only."""


class Builder(msgspec.Struct, frozen=True, kw_only=True):
    """The compiler of a language: its command, where to find it, how to install it, and the files it needs."""

    command: Callable[[Path, Path], list[str]]
    find: Callable[[Path], list[str] | None]
    hint: str
    beside: tuple[str, ...] = ()


def starter(name: str) -> str:
    """Return the text of a starter."""
    return (files("treadle.cli") / "starters" / name).read_text("utf-8")


def new(file: Path, *, is_tools: bool) -> int:
    """Write a first guest and what must lie beside it; nothing that is there is overwritten."""
    chosen = STARTERS.get((file.suffix, is_tools)) or STARTERS.get((file.suffix, True))
    if chosen is None or (is_tools and (file.suffix, True) not in STARTERS):
        known = ", ".join(suffix for suffix, tools in STARTERS if tools == is_tools)
        raise RequestError(f"there is no such guest for {file.suffix or file}", param="file", hint=f"there is {known}")
    if file.exists():
        raise RequestError(f"{file} is there already", param="file", hint="name another file")
    if not file.parent.is_dir():
        raise NotFound(f"there is no folder {file.parent}", param="file")
    built = file if file.suffix == ".wat" else file.with_suffix(".wasm")
    _write(file, chosen.file)
    for name in chosen.beside:
        _write(file.with_name(name), name)
    if chosen.described:
        _write(file.with_name(f"{built.name}.json"), "tools.json")
    steps = [] if built == file else [f"treadle wasm build {file}"]
    print(f"next: {' && '.join([*steps, f'treadle wasm check {built}', *_run_step(chosen, built)])}")
    return command.OK


def build(file: Path, output: Path | None) -> int:
    """Build a guest with the compiler of its language."""
    if not file.is_file():
        raise NotFound(f"there is no file {file}", param="file")
    builder = BUILDERS.get(file.suffix)
    if builder is None:
        known = ", ".join(BUILDERS)
        raise RequestError(f"{file.suffix or file} cannot be built", param="file", hint=f"what can: {known}")
    target = output or file.with_suffix(".wasm")
    found = builder.find(file)
    if found is None:
        raise ConfigError(f"building {file.suffix} needs a compiler that is not there", hint=builder.hint)
    for name in builder.beside:
        _write(file.with_name(name), name)
    arguments = [*found, *builder.command(file, target.absolute())]
    try:
        done = subprocess.run(arguments, cwd=file.parent, timeout=BUILD_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = f"if its compiler does not start: {builder.hint}"
        raise RequestError(f"{file} could not be built: {error}", hint=hint) from None
    if done.returncode != 0:
        raise RequestError(f"{file} could not be built", hint="the compiler says why above")
    print(f"wrote {target}")
    return command.OK


def _write(file: Path, name: str) -> None:
    if not file.exists():
        file.write_text(starter(name), "utf-8")
        print(f"wrote {file}")


def _run_step(chosen: Starter, built: Path) -> list[str]:
    return [f"treadle wasm run {built} -m demo"] if chosen.file.startswith("session") else []


def _c(file: Path, target: Path) -> list[str]:
    """Name the flags for C: a file without `main` is a library that its host calls."""
    kind = [] if "int main(" in file.read_text("utf-8", "replace") else ["-mexec-model=reactor"]
    return ["-target", "wasm32-wasi", "-O2", "-s", *kind, "-I.", "-Wl,--export-table", file.name, "-o", str(target)]


def _assemblyscript(file: Path, target: Path) -> list[str]:
    """Name the flags for AssemblyScript: its own `abort` would be an import that no host of ours has."""
    return [file.name, "-o", str(target), "-O", "--exportTable", "--runtime", "minimal", "--use", "abort="]


def _javascript(file: Path, target: Path) -> list[str]:
    return ["--sync", "--stub-wasi", "-w", WORLD, "-n", "tool", "-j", file.name, "-o", str(target)]


def _python(file: Path, target: Path) -> list[str]:
    return ["-d", WORLD, "-w", "tool", "componentize", "--stub-wasi", file.stem, "-o", str(target)]


def _find_zig(_file: Path) -> list[str] | None:
    return None if importlib.util.find_spec("ziglang") is None else [sys.executable, "-m", "ziglang", "cc"]


def _find_npm(name: str, file: Path) -> list[str] | None:
    """Find a command of npm: in node_modules beside the file or above it, else on the path."""
    here = file.absolute().parent
    folders = [str(folder / "node_modules" / ".bin") for folder in (here, *here.parents)]
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    return None if found is None else [found]


def _find_pip(name: str, _file: Path) -> list[str] | None:
    """Find a command of pip: beside this Python, else on the path."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(folders))
    return None if found is None else [found]


BUILDERS: dict[str, Builder] = {
    ".c": Builder(command=_c, find=_find_zig, hint="pip install ziglang", beside=(HEADER,)),
    ".ts": Builder(
        command=_assemblyscript, find=lambda file: _find_npm("asc", file), hint="npm install assemblyscript"
    ),
    ".js": Builder(
        command=_javascript,
        find=lambda file: _find_npm("componentize-qjs", file),
        hint="npm install componentize-qjs",
        beside=(WORLD,),
    ),
    ".py": Builder(
        command=_python,
        find=lambda file: _find_pip("componentize-py", file),
        hint="pip install componentize-py",
        beside=(WORLD,),
    ),
}
