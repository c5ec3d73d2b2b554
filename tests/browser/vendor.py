"""Makes what the pages have from others: `python -m browser.vendor` writes the files, `--check` compares them.

Each is the package's own code without what the pages never use, which would be a fifth of what they download: Preact
with four of its hooks and htm as one file, and of marked the lexer with its default options alone.
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from clients.cache import NotInstalled
from clients.node import install

PACKAGES = {"esbuild": "0.28.2", "htm": "3.1.1", "marked": "18.2.0", "preact": "11.2.0"}
TIMEOUT_S = 120
VENDOR = Path(str(files("treadle.server") / "web" / "vendor"))
HEADS = {
    "preact.js": "preact v{preact} (with hooks), Copyright (c) 2015-present Jason Miller, MIT License; "
    "htm v{htm}, Copyright 2018 Google Inc., Apache License 2.0: what the pages use of them.",
    "marked.js": "marked v{marked}: the lexer alone. Copyright (c) 2018-2026, MarkedJS. "
    "Copyright (c) 2011-2018, Christopher Jeffrey. MIT License.",
}
PREACT = """
export { Component, h, render } from "preact";
export { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
export { default as htm } from "htm";
"""
LEXER = 'import { _Lexer } from "./Lexer.ts";\nexport const lexer = _Lexer.lex;\n'
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "Lexer.ts": (
        (r"this\.options\.(?:pedantic|breaks|silent)\b", "false"),
        (r"this\.options\.gfm\b", "true"),
        (r"this\.options\.(?:extensions|hooks)\b", "null"),
        (r"static get rules\(\) \{.*?\n  \}\n", ""),
        (r"static lexInline.*?\n  \}\n", ""),
        (r"block: block\.normal,\s*inline: inline\.normal,", "block: block.gfm, inline: inline.gfm,"),
    ),
    "Tokenizer.ts": ((r"this\.options\.pedantic\b", "false"),),
    "rules.ts": (
        (r"const (?:blockPedantic|inlinePedantic|inlineBreaks)\b.*?\n\};\n", ""),
        (r"const \w+Pedantic\b[^;]*?\.getRegex\(\);\n", ""),
        (r"  (?:pedantic|breaks|normal): \w+,\n", ""),
        (r"  (?:pedanticH\w+|escape(?:Test|Replace)\w*|percentDecode|notSpaceStart|endingNewline):[^\n]*\n", ""),
    ),
}
"""What is replaced in each source of marked; every one of them must be found."""


def make() -> dict[str, bytes]:
    """Return the files by their names.

    Raises: NotInstalled.
    """
    manifest = {"name": "treadle-vendor", "private": True, "dependencies": PACKAGES}
    packages = install(json.dumps(manifest).encode()) / "node_modules"
    map_ = json.loads((packages / "marked" / "lib" / "marked.esm.js.map").read_bytes())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "node_modules").symlink_to(packages)
        for path, source in zip(map_["sources"], map_["sourcesContent"], strict=True):
            (folder / Path(path).name).write_text(_changed(Path(path).name, source), encoding="utf-8")
        return {"preact.js": _bundle(folder, "preact.js", PREACT), "marked.js": _bundle(folder, "marked.js", LEXER)}


def _bundle(folder: Path, name: str, entry: str) -> bytes:
    (folder / "entry.ts").write_text(entry, encoding="utf-8")
    flags = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=none")
    command = (str(folder / "node_modules" / ".bin" / "esbuild"), str(folder / "entry.ts"), *flags)
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
    return f"/* {HEADS[name].format(**PACKAGES)} */\n".encode() + done.stdout


def _changed(name: str, source: str) -> str:
    for pattern, replacement in CHANGES.get(name, ()):
        source, count = re.subn(pattern, replacement, source, flags=re.DOTALL)
        assert count, f"{name} has no {pattern}"
    return source


def main(arguments: list[str]) -> int:
    """Write the files or compare them, and return the exit code."""
    try:
        made = make()
    except NotInstalled as error:
        print(f"the packages are not to be had: {error}", file=sys.stderr)
        return 2
    if arguments == ["--check"]:
        other = [name for name, body in made.items() if (VENDOR / name).read_bytes() != body]
        print(f"vendor: {', '.join(other)} differ from what is made" if other else "vendor: as it is made")
        return 1 if other else 0
    for name, body in made.items():
        (VENDOR / name).write_bytes(body)
        print(f"{name}: {len(body)} bytes, sha256 {hashlib.sha256(body).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
