"""`python -m bench.report.document`: puts the kept results and plots into docs/performance.md, between their marks."""

import re
import sys
from pathlib import Path

from bench.peers.gateways import GATEWAYS
from bench.peers.loops import FRAMEWORKS
from bench.report import ahead, goals
from bench.report.results import Result, folder, read
from bench.rig.processes import ROOT

DOCUMENT = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
MADE = {"goals": goals.table, "ahead": ahead.table}
"""The tables that are made of the other results."""

UNSHOWN = ("journal",)
"""Results that have goals; docs/reliability.md tells the rest of them."""


def marks(text: str) -> list[str]:
    """Return the names of the results that a document asks for."""
    return re.findall(r"<!-- measured: ([a-z-]+) -->", text)


def put(text: str, name: str, words: str) -> str:
    """Return the document with new words between the marks of one result."""
    pattern = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the document has no place for {name!r}")
    return pattern.sub(lambda found: f"{found[1]}{words}\n{found[2]}", text)


def renew(text: str, name: str, table: str) -> str:
    """Return the document with the rows of a table between the marks of its name; those it does not have stay.

    So what was measured on another day is not lost where only some is measured again.
    """
    [before] = re.findall(rf"<!-- measured: {name} -->\n(.*?)<!-- end: {name} -->", text, re.DOTALL)
    made = _rows(table)
    left = {key: row for key, row in _rows(before).items() if key not in made}
    order = [*_rows(before), *(key for key in made if key not in left)]
    rows = [(made | left)[key] for key in dict.fromkeys(order)]
    head = [line for line in table.splitlines() if line not in made.values()]
    return put(text, name, "\n".join(["", *head, *rows, ""]))


def _rows(table: str) -> dict[str, str]:
    """Return the rows of a table by their first cell, without the two lines of its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return {line.split("|")[1].strip(): line for line in lines}


def words_of(result: Result, machine: str, versions: str) -> str:
    """Return what the document says of one result."""
    pictures = [f"![{plot.alt}](images/{plot.name}.svg)" for plot in result.plots]
    tables = [table.markdown() for table in result.tables]
    source = f"<sub>{machine}. {versions}. {result.note}.</sub>"
    return "\n\n".join(["", *tables, *pictures, source, ""])


def peer_versions(name: str) -> str:
    """Return what the peers of a result are, by the names that they are installed by."""
    if not name.endswith("-peers"):
        return ""
    peers = FRAMEWORKS if name == "loops-peers" else GATEWAYS
    return "; peers: " + ", ".join(peer.version for peer in peers)


def main() -> None:
    """Write every result that is there; say which are not."""
    text = DOCUMENT.read_text(encoding="utf-8")
    names = [*(name for name in marks(text) if name not in MADE), *UNSHOWN]
    files: dict[str, Path] = {name: folder() / f"{name}.json" for name in names}
    missing = [name for name, file in files.items() if not file.exists()]
    kept = {name: read(file) for name, file in files.items() if name not in missing}
    for name, (result, machine, versions) in kept.items():
        if name in UNSHOWN:
            continue
        text = put(text, name, words_of(result, machine, versions + peer_versions(name)))
        for plot in result.plots:
            (IMAGES / f"{plot.name}.svg").write_text(plot.svg, encoding="utf-8")
    figures = {name: result.figures for name, (result, _, _) in kept.items()}
    for name, make in MADE.items():
        text = renew(text, name, make(figures).markdown())
    DOCUMENT.write_text(text, encoding="utf-8")
    if missing:
        sys.exit(f"not measured yet, left as they were: {', '.join(missing)}")


if __name__ == "__main__":
    main()
