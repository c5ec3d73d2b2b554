"""docs/clients.md says what is true: its programs run as they stand, and it names the versions they are run with."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from clients import node, python
from clients.commands import COMMANDS
from clients.model import answer, learnt
from clients.recipes import ADDRESS, DOCUMENT, read_recipes
from clients.sandbox import Home, Ran
from clients.watched import Watched
from treadle.tools.demo_tools import DEMO_TOOLS

ROOT = DOCUMENT.parents[1]
RECIPES = read_recipes()
SDKS = ("OpenAI SDK", "Anthropic SDK", "Google Gen AI SDK")
FRAMEWORKS = ("OpenAI Agents SDK", "Pydantic AI", "LangChain")
SCRIPTS = (*SDKS, "Vercel AI SDK")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Watched]:
    """Start a Treadle with server tools; the protocol of its upstream is another test's business."""
    with Watched(answer, tmp_path, tools=DEMO_TOOLS) as running:
        yield running


def _program(name: str, language: str, gateway: Watched) -> str:
    return RECIPES[name].changed((ADDRESS, gateway.origin)).program(language)


def _assert_answered(ran: Ran, weather: str) -> None:
    """The last words are the answer; what the model said before its call may stand before them."""
    assert (ran.code, ran.errors, ran.outside) == (0, "", frozenset())
    assert ran.output.endswith(f"{learnt(weather)}\n")


@pytest.mark.parametrize("name", SDKS)
def test_a_program_of_a_python_sdk_runs_as_shown(gateway: Watched, home: Home, weather: str, name: str) -> None:
    """It prints the answer that a server tool led to."""
    ran = home.run(sys.executable, "-c", _program(name, "python", gateway))
    _assert_answered(ran, weather)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_program_of_a_framework_runs_as_shown(
    interpreter: Path, gateway: Watched, home: Home, weather: str, name: str
) -> None:
    """It prints the answer that its own tool and a server tool led to."""
    ran = home.run(interpreter, "-c", _program(name, "python", gateway))
    _assert_answered(ran, weather)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_program_for_node_runs_as_shown(
    packages: Path, gateway: Watched, home: Home, weather: str, name: str
) -> None:
    """It prints the answer that a server tool led to."""
    home.link("node_modules", packages)
    home.write("recipe.mjs", _program(name, "js", gateway))
    ran = home.run(node.NODE, "recipe.mjs")
    _assert_answered(ran, weather)


def test_every_recipe_is_run() -> None:
    """A block that no test runs would be a claim."""
    run = {
        **dict.fromkeys(COMMANDS, ("sh",)),
        **dict.fromkeys(SDKS, ("python", "js")),
        **dict.fromkeys(FRAMEWORKS, ("python",)),
        "Vercel AI SDK": ("js",),
    }
    assert {name: recipe.languages() for name, recipe in RECIPES.items()} == run


def _pins(text: str) -> dict[str, str]:
    return dict(line.split("==") for line in text.splitlines() if "==" in line)


def test_the_versions_shown_are_those_that_are_run() -> None:
    """The table names what npm and pip are told to install."""
    pins = {
        *((command.package, command.version) for command in COMMANDS.values()),
        *json.loads(node.MANIFEST)["dependencies"].items(),
        *_pins(python.REQUIREMENTS.read_text(encoding="utf-8")).items(),
    }
    rows = re.findall(r"^\| \[.+?\]\(#.+?\) \| (.+?) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {tuple(each.split(" ")[:2]) for row in rows for each in row.split(", ")}
    assert len(rows) == len(SDKS) + len(FRAMEWORKS) + len(set(COMMANDS.values())) + 1
    assert shown - pins == set()


def test_the_pins_are_what_the_project_asks_for() -> None:
    """The frameworks fit the extra `clients`, and bring the same SDKs that the other tests use."""
    pins = _pins(python.REQUIREMENTS.read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(line) for line in project["optional-dependencies"]["clients"]]
    assert [need.name for need in wanted if not need.specifier.contains(pins[need.name])] == []
    constraints = _pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    sdks = ("openai", "anthropic", "google-genai")
    assert [pins[name] for name in sdks] == [constraints[name] for name in sdks]
