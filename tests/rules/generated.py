"""Texts in the documents that are made from code. A test compares them; `python -m rules.generated` rewrites them.

A document marks such a text with `<!-- generated: NAME -->` and `<!-- end -->`, each on a line of its own.
"""

import re
from collections.abc import Callable
from pathlib import Path

from rules.tree import ROOT, files, shown
from treadle.cli.main import COMMANDS
from treadle.config import write_example

_BLOCK = re.compile(r"<!-- generated: (?P<name>[a-z-]+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)


def _config_example() -> str:
    return f"```toml\n{write_example().rstrip()}\n```\n"


def _commands() -> str:
    """Write the commands as a table; their flags are left to `--help`, which words them by Python version."""
    rows = [f"| `treadle {entry.name}` | {entry.summary} |" for entry in COMMANDS]
    return "\n".join(["| command | what it does |", "|---|---|", *rows, ""])


GENERATORS: dict[str, Callable[[], str]] = {"config-example": _config_example, "commands": _commands}
"""What can be generated, by name."""


def documents() -> list[Path]:
    """Return the documents of the project."""
    return [path for path in files() if path.suffix == ".md" and "node_modules" not in path.parts]


def blocks(path: Path) -> list[tuple[str, str]]:
    """Return the generated texts of a document by name, as they are written there."""
    return [(match["name"], match["text"]) for match in _BLOCK.finditer(path.read_text(encoding="utf-8"))]


def _renewed(match: re.Match[str]) -> str:
    return f"<!-- generated: {match['name']} -->\n{GENERATORS[match['name']]()}<!-- end -->"


def main() -> None:
    """Rewrite every generated text."""
    for path in documents():
        old = path.read_text(encoding="utf-8")
        new = _BLOCK.sub(_renewed, old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"rewrote {shown(path)} in {ROOT.name}")


if __name__ == "__main__":
    main()
