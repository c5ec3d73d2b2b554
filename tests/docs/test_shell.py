"""What the documents tell people to type works: guides are played whole, requests are sent, no block is left out."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.blocks import GATEWAY, SHELLS, Block, blocks, program_of
from gateway.server_process import Served, served
from rules.tree import ROOT, shown

PLAYED_S = 240
PLAYED = ("docs/start.md", "docs/guides/", "docs/operations.md")
"""Documents whose commands are run one after the other, in an empty folder, as a reader would."""

ELSEWHERE = {
    ("docs/clients.md", "*"): "tests/clients",
    ("docs/wasm.md", "console"): "tests/toolchains",
    ("docs/journal.md", "sql"): "tests/store/test_documented.py",
    ("examples/", "sh"): "tests/examples",
}
"""Blocks that other tests run, by document and language."""

CHECKED = {"treadle", "curl", "make", "pip", "pipx"}
"""Programs whose command lines are checked wherever they stand, here and in tests/rules/test_snippets.py."""

PRELUDE = """
set -eu
address=""
serve() {  # start a gateway on a free port, and wait until it says where
  : > serve.log  # the one started behind may not have made it yet
  treadle serve --port 0 "$@" >> serve.log 2>&1 &
  server=$!
  trap 'kill $server' EXIT
  for _ in $(seq 600); do
    address=$(sed -n 's/^Treadle is at \\(.*\\)\\/$/\\1/p' serve.log)
    [ -z "$address" ] || return 0
    kill -0 $server || { cat serve.log; return 1; }
    read -r -t 0.1 <> <(:) || true
  done
  return 1
}
"""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def who_runs(block: Block) -> str | None:
    """Return what runs or checks a block, None when nothing does."""
    name = shown(block.document)
    for (document, language), tests in ELSEWHERE.items():
        if name.startswith(document) and language in ("*", block.language):
            return tests
    if block.language in ("python", "toml"):
        return "tests/rules/test_snippets.py"
    if block.language in ("json", "text"):
        return "this file: JSON is read, and a text is nothing to run"
    if block.language not in SHELLS or not block.commands:
        return None
    if block.language == "sh" and name.startswith(PLAYED):
        return "this file, whole"
    return "line by line" if {program_of(line) for line in block.commands} <= CHECKED else None


def test_every_block_is_run_or_says_why_not() -> None:
    """A block in another language, or with another program, needs a runner here or a reason in the document."""
    assert [block.place for block in blocks() if block.why is None and who_runs(block) is None] == []
    assert [block.place for block in blocks() if block.why is not None and len(block.why) < 10] == []


def test_tests_elsewhere_are_there() -> None:
    """What is left to other tests is not left to nobody."""
    assert [place for place in ELSEWHERE.values() if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("block", [each for each in blocks() if each.language == "json"], ids=lambda each: each.place)
def test_json_is_json(block: Block) -> None:
    """A whole document, or a line each."""
    lines = block.text.strip().splitlines()
    whole = [block.text] if not all(line.startswith("{") and line.endswith("}") for line in lines) else lines
    assert all(json.loads(each) for each in whole)


def played() -> dict[str, list[Block]]:
    """Return the blocks of each document that is played."""
    found: dict[str, list[Block]] = {}
    for block in blocks():
        if shown(block.document).startswith(PLAYED) and block.language == "sh" and block.why is None:
            found.setdefault(shown(block.document), []).append(block)
    return found


@pytest.mark.parametrize("document", played())
def test_a_guide_can_be_followed_to_its_end(document: str, tmp_path: Path) -> None:
    """Its commands, in order, in an empty folder with an empty home; a gateway it starts is reached where it is."""
    for block in blocks():
        named = re.match(r"# (?P<name>\w+\.py)\n", block.text)
        if shown(block.document) == document and named:
            (tmp_path / named["name"]).write_text(block.text, encoding="utf-8")
    lines = [line for block in played()[document] for line in block.commands]
    script = PRELUDE + "\n".join(_line(line) for line in lines) + "\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "PYTHONUTF8": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PLAYED_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _line(line: str) -> str:
    serving = re.fullmatch(r"treadle serve(?P<flags>.*) &", line)
    return f"serve {serving['flags']}" if serving else line.replace(GATEWAY, "$address")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve the demo model."""
    with served(tmp_path_factory.mktemp("shell")) as server:
        yield server


def requests() -> list[tuple[str, str]]:
    """Return the requests by curl in documents that are not played, with where they stand."""
    return [
        (block.place, line)
        for block in blocks()
        if not shown(block.document).startswith((*PLAYED, "examples/")) and block.language in SHELLS
        for line in block.commands
        if program_of(line) == "curl" and block.why is None
    ]


@pytest.mark.parametrize(("place", "line"), requests())
def test_a_request_by_curl_is_answered(place: str, line: str, tmp_path: Path, gateway: Served) -> None:
    """As it is written, but for the port; through a tool, as they all ask for the weather."""
    asked = line.replace(GATEWAY, gateway.url).replace("curl ", "curl -sS --fail-with-body ", 1)
    asked = re.sub(r"-H 'last-event-id: [0-9a-f.]+'", "-H 'last-event-id: 0'", asked)
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Paris" in done.stdout) == (0, True), f"{place}: {done.stdout}{done.stderr}"


def lines_of(program: str) -> list[str]:
    """Return the command lines of a program in all documents."""
    return [
        line for block in blocks() if block.language in SHELLS for line in block.commands if program_of(line) == program
    ]


def test_targets_that_are_named_are_in_the_makefile() -> None:
    """Also those in sentences: every `make something` in code."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    written = {path: path.read_text(encoding="utf-8") for path in {block.document for block in blocks()}}
    named = {name for text in written.values() for name in re.findall(r"`make ([a-z-]+)", text)}
    named |= {word for line in lines_of("make") for word in shlex.split(line)[1:] if "=" not in word}
    assert named - targets == set()


def test_extras_that_are_named_can_be_installed() -> None:
    """`pip install 'treadle[x]'` names an extra of the package, in every document."""
    texts = [path.read_text(encoding="utf-8") for path in {block.document for block in blocks()}]
    named = {name for text in texts for group in re.findall(r"treadle\[([a-z,]+)\]", text) for name in group.split(",")}
    assert named - set(EXTRAS) == set()
