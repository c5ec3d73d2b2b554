"""The coding agents that run in a terminal: where they come from, and where in their output the last words are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clients import node
from clients.cache import NotInstalled
from clients.recipes import ADDRESS, Recipe
from clients.sandbox import Home, Ran
from clients.watched import Watched


def _lines(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def _codex(output: str) -> str:
    items = [event["item"] for event in _lines(output) if event["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"][-1]


def _opencode(output: str) -> str:
    return [event["part"]["text"] for event in _lines(output) if event["type"] == "text"][-1]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command of npm; `last_words` finds them in what it prints."""

    package: str
    version: str
    last_words: Callable[[str], str]

    def folder(self) -> Path:
        """Return where it is installed, or skip the test with the reason why it cannot be."""
        try:
            return node.install_command(self.package, self.version)
        except NotInstalled as reason:
            pytest.skip(f"{self.package}: {reason}")


CODEX = Command(package="@openai/codex", version="0.166.0", last_words=_codex)
CLAUDE = Command(
    package="@anthropic-ai/claude-code", version="2.1.325", last_words=lambda output: json.loads(output)["result"]
)
OPENCODE = Command(package="opencode-ai", version="1.18.33", last_words=_opencode)
GEMINI = Command(
    package="@google/gemini-cli", version="0.61.0", last_words=lambda output: json.loads(output)["response"]
)
QWEN = Command(
    package="@qwen-code/qwen-code", version="0.24.4", last_words=lambda output: json.loads(output)[-1]["result"]
)

COMMANDS: dict[str, Command] = {
    "Codex": CODEX,
    "Codex with its own provider": CODEX,
    "Claude Code": CLAUDE,
    "opencode": OPENCODE,
    "Gemini CLI": GEMINI,
    "Qwen Code": QWEN,
}
"""By the heading of their recipe."""


def follow(recipe: Recipe, gateway: Watched, folder: Path, note: str) -> Ran:
    """Do what a recipe says in a fresh home whose working folder holds the note."""
    home = Home(folder, COMMANDS[recipe.name].folder())
    here = recipe.changed((ADDRESS, gateway.origin))
    for path, text in {**here.files(), "note.txt": note}.items():
        home.write(path, text)
    return home.run("bash", "-eu", "-c", here.program("sh"))
