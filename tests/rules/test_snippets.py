"""What the documents show works: programs run, configurations load, scenarios pass, command lines parse.

A Python snippet that begins with `# name.py` is a file of that name beside the others of its document. One that speaks
to a gateway gets one, on another port. A client that is not installed here is left to `make test-clients`.
"""

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.blocks import GATEWAY, SHELLS, Block, blocks
from gateway.server_process import Served, served
from treadle.cli.main import build_parser, name_command
from treadle.config import load_settings
from treadle.evals.offline_runner import play
from treadle.evals.scenario_file import read_scenario
from treadle.tools.tool_loading import load_file

FILE = re.compile(r"# (?P<name>\w+\.py)\n")
ASSIGNMENT = re.compile(r"[A-Z_]+=\S+")


def snippets(*languages: str) -> list[Block]:
    """Return the texts in these languages, in every document, but for those that say why they are not run."""
    return [block for block in blocks() if block.language in languages and block.why is None]


def file_name(snippet: Block) -> str:
    """Return the name that a program says it has, or one that no other has."""
    named = FILE.match(snippet.text)
    return named["name"] if named else f"snippet_{snippet.number}.py"


def place(snippet: Block) -> str:
    """Return where a snippet stands."""
    return snippet.place


def run_program(name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a file of a folder with an empty environment."""
    return subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUTF8": "1", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("snippet", [each for each in snippets("python") if GATEWAY not in each.text], ids=place)
def test_a_program_runs(snippet: Block, tmp_path: Path) -> None:
    """In an empty folder and an empty environment: no key, no file, only its neighbours from the same document."""
    for each in snippets("python"):
        if each.document == snippet.document:
            (tmp_path / file_name(each)).write_text(each.text, encoding="utf-8")
    done = run_program(file_name(snippet), tmp_path, PYTHONWARNINGS="error")
    assert (done.returncode, done.stderr) == (0, "")
    if FILE.match(snippet.text):
        assert load_file(tmp_path / file_name(snippet))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve the demo model."""
    with served(tmp_path_factory.mktemp("gateway")) as server:
        yield server


@pytest.mark.parametrize("snippet", [each for each in snippets("python") if GATEWAY in each.text], ids=place)
def test_a_client_is_answered(snippet: Block, tmp_path: Path, gateway: Served) -> None:
    """Its question is answered through a server tool."""
    for name in imported(snippet.text):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    (tmp_path / "client.py").write_text(snippet.text.replace(GATEWAY, gateway.url), encoding="utf-8")
    done = run_program("client.py", tmp_path)
    assert (done.returncode, "Paris" in done.stdout) == (0, True), done.stderr


def imported(text: str) -> set[str]:
    """Return the packages that a program imports."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_the_first_example_answers_its_question(tmp_path: Path) -> None:
    """The tool of the README is called by the command below it, on the demo model."""
    [tools] = [each for each in snippets("python") if each.place.startswith("README.md#") and FILE.match(each.text)]
    (tmp_path / file_name(tools)).write_text(tools.text, encoding="utf-8")
    command = next(line for line in command_lines() if line.startswith("treadle run --tools"))
    done = subprocess.run(
        [sys.executable, "-m", "treadle.cli.main", *shlex.split(command, comments=True)[1:]],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "**get_price** answered **12.5**\n")
    assert done.stderr.startswith('treadle: get_price(article="A7") → ok, ')


@pytest.mark.parametrize("snippet", snippets("toml"), ids=place)
async def test_a_configuration_loads_and_a_scenario_passes(snippet: Block, tmp_path: Path) -> None:
    """What has a script is a scenario; everything else without a title is a treadle.toml."""
    tree = tomllib.loads(snippet.text)
    if snippet.title:
        return
    if "script" in tree:
        sample = await play(read_scenario(snippet.text))
        assert (sample.broken, [verdict for verdict in sample.verdicts if not verdict.passed]) == (None, [])
        return
    file = tmp_path / "treadle.toml"
    file.write_text(snippet.text, encoding="utf-8")
    load_settings(file, env={"HOME": str(tmp_path)})


def command_lines() -> list[str]:
    """Return the lines of the documents that call Treadle, variables in front and what comes behind a pipe left out."""
    lines = [line for block in snippets(*SHELLS) for line in block.commands]
    bare = [re.split(r" (?:\||\|\||>|&$)(?: |$)", ASSIGNMENT.sub("", line).strip())[0] for line in lines]
    return list(dict.fromkeys(line for line in bare if line.startswith("treadle ")))


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_is_understood(line: str) -> None:
    """Every command and flag that is shown exists."""
    words = name_command(shlex.split(line, comments=True)[1:])
    args, unknown = build_parser().parse_known_args(words)
    assert (args.command, unknown) == (words[0], [])
