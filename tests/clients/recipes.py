"""The recipes of docs/clients.md as something that runs: files to write, a shell script, or a program.

A fenced block with a title is a file; the address and the model that the document shows are replaced by a test's own.
"""

import re
from pathlib import Path

import msgspec

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"
ADDRESS = "http://127.0.0.1:8700"
_HEADING = re.compile(r"^#{2,3} (?P<name>.+)$", re.MULTILINE)
_FENCE = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block."""

    language: str
    title: str | None
    text: str


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks of one section."""

    name: str
    blocks: tuple[Block, ...]

    def files(self) -> dict[str, str]:
        """Return the files to write, by path."""
        return {block.title: block.text for block in self.blocks if block.title is not None}

    def program(self, language: str) -> str:
        """Return the only program of that language."""
        [block] = [block for block in self.blocks if block.language == language and block.title is None]
        return block.text

    def languages(self) -> tuple[str, ...]:
        """Return the language of each program."""
        return tuple(block.language for block in self.blocks if block.title is None)

    def changed(self, *changes: tuple[str, str]) -> "Recipe":
        """Return the recipe with other words; each must be there."""
        whole = "".join(block.text for block in self.blocks)
        assert [old for old, _ in changes if old not in whole] == []
        return msgspec.structs.replace(self, blocks=tuple(_change(block, changes) for block in self.blocks))


def _change(block: Block, changes: tuple[tuple[str, str], ...]) -> Block:
    text = block.text
    for old, new in changes:
        text = text.replace(old, new)
    return msgspec.structs.replace(block, text=text)


def read_recipes() -> dict[str, Recipe]:
    """Return the recipes of the document by the heading they are under."""
    _, *pieces = _HEADING.split(DOCUMENT.read_text(encoding="utf-8"))
    sections = zip(pieces[::2], pieces[1::2], strict=True)
    recipes = (Recipe(name=name, blocks=_blocks(text)) for name, text in sections)
    return {recipe.name: recipe for recipe in recipes if recipe.blocks}


def _blocks(text: str) -> tuple[Block, ...]:
    return tuple(Block(**match.groupdict()) for match in _FENCE.finditer(text))
