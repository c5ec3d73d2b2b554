"""The fenced blocks of the documents, and the command lines in them.

A block that cannot be run says so on the line before it: `<!-- not run: REASON -->`.
"""

import re
from pathlib import Path

import msgspec

from rules.tree import ROOT, shown

DOCUMENTS = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "VERSIONING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
GATEWAY = "http://127.0.0.1:8700"
SHELLS = ("", "sh", "console")
_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]*?) -->\n)?```(?P<language>\w*)(?P<title>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_ASSIGNMENT = re.compile(r"^(?:[A-Z_]+=\S+\s+)+(?=\w)")
_COMMENT = re.compile(r"(?:^|\s+)#(?: .*)?$")


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A fenced text; a title names a file of somebody else's, `why` says why it is not run."""

    document: Path
    number: int
    language: str
    title: str
    text: str
    why: str | None = None

    @property
    def place(self) -> str:
        """Return where it stands."""
        return f"{shown(self.document)}#{self.number}"

    @property
    def commands(self) -> list[str]:
        """Return its command lines: joined where they go on, without comments and what a console answers."""
        text = self.text.replace("\\\n", " ")
        lines = text.splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        bare = [_COMMENT.sub("", line).strip() for line in lines]
        return [line for line in bare if line]


def blocks() -> list[Block]:
    """Return every block of every document."""
    return [
        Block(
            document=path,
            number=number,
            language=match["language"],
            title=match["title"].strip(),
            text=match["text"],
            why=match["why"],
        )
        for path in DOCUMENTS
        for number, match in enumerate(_FENCE.finditer(path.read_text(encoding="utf-8")))
    ]


def program_of(line: str) -> str:
    """Return the program that a command line starts, variables in front left out."""
    return _ASSIGNMENT.sub("", line).split()[0]
