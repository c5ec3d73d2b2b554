"""The guest kit: a first guest to start from, and building C with the compiler that pip brings."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from treadle.canon.errors import ConfigError, NotFound, RequestError
from treadle.cli import command
from treadle.cli.wasm.templates import HEADER, TEMPLATES

HEADER_NAME = "treadle_cchat.h"
BUILD_S = 300


def new(file: Path, *, is_tools: bool) -> int:
    """Write a first guest, and the header beside one in C; nothing that is there is overwritten."""
    template = TEMPLATES.get((file.suffix, is_tools))
    if template is None:
        known = ", ".join(suffix for suffix, tools in TEMPLATES if tools == is_tools)
        raise RequestError(f"there is no such guest for {file.suffix or file}", param="file", hint=f"there is {known}")
    if file.exists():
        raise RequestError(f"{file} is there already", param="file", hint="name another file")
    file.write_text(template, "utf-8")
    print(f"wrote {file}")
    header = file.with_name(HEADER_NAME)
    if file.suffix == ".c" and not header.exists():
        header.write_text(HEADER, "utf-8")
        print(f"wrote {header}")
    step = f"treadle wasm build {file}" if file.suffix == ".c" else f"treadle wasm run {file}"
    print(f"next: {step}")
    return command.OK


def build(file: Path, output: Path | None) -> int:
    """Build a guest from C with pip's ziglang."""
    if not file.is_file():
        raise NotFound(f"there is no file {file}", param="file")
    if importlib.util.find_spec("ziglang") is None:
        raise ConfigError("building C needs the compiler of ziglang", hint="pip install ziglang")
    target = output or file.with_suffix(".wasm")
    headers = file.parent
    if not (headers / HEADER_NAME).exists():
        (headers / HEADER_NAME).write_text(HEADER, "utf-8")
    exports = [] if "int main(" in file.read_text("utf-8", "replace") else ["-mexec-model=reactor"]
    arguments = ["-target", "wasm32-wasi", "-O2", "-s", *exports, f"-I{headers}", "-Wl,--export-table"]
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *arguments, str(file), "-o", str(target)], timeout=BUILD_S, check=False
    )
    if done.returncode != 0:
        raise RequestError(f"{file} could not be built", param="file", hint="the compiler says why above")
    print(f"wrote {target}")
    return command.OK
