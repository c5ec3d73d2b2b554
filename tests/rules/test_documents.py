"""The documents: short where they promise it, links that lead somewhere, tables that tell what the code does."""

import re
from pathlib import Path

import pytest

from rules.generated import GENERATORS, blocks, documents
from rules.tree import ROOT, files, shown

LINES_MAX = {"README.md": 120, "ARCHITECTURE.md": 150}
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*$", re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|mnt|Users|home/(?!ada\b|user\b|you\b)[a-z]\w*)/[\w.]")


@pytest.mark.parametrize(("name", "lines_max"), LINES_MAX.items())
def test_a_document_keeps_to_its_length(name: str, lines_max: int) -> None:
    """What a newcomer reads first stays short, and is there."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert 1 <= len(lines) <= lines_max


def test_links_between_documents_lead_somewhere() -> None:
    """Every relative link names a file of the project, and its anchor a heading there."""
    found = {shown(path): [link for link in _links(path) if not _leads_somewhere(path, link)] for path in documents()}
    assert {name: links for name, links in found.items() if links} == {}


def _links(document: Path) -> list[str]:
    prose = CODE.sub("", FENCE.sub("", document.read_text(encoding="utf-8")))
    return [match["target"] for match in LINK.finditer(prose)]


def _leads_somewhere(document: Path, target: str) -> bool:
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return True
    name, _, anchor = target.partition("#")
    file = (document.parent / name).resolve() if name else document
    if not file.exists() or ROOT not in [file, *file.parents]:
        return False
    return not anchor or file.suffix != ".md" or anchor in _anchors(file)


def _anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", match["text"].lower()).strip().replace(" ", "-") for match in HEADING.finditer(text)
    }


def test_no_file_names_a_path_of_some_machine() -> None:
    """What only exists where it was written helps nobody, and tells too much."""
    here = re.escape(str(ROOT).encode())
    found: list[str] = []
    for path in files():
        data = path.read_bytes()
        if b"\0" in data[:1024] or path == Path(__file__).resolve():
            continue
        text = data.decode("utf-8", "replace")
        lines = [number for number, line in enumerate(text.splitlines(), 1) if MACHINE_PATH.search(line)]
        found += [f"{shown(path)}:{number}" for number in lines]
        found += [f"{shown(path)}: the checkout itself"] if re.search(here, data) else []
    assert found == []


def test_generated_texts_are_what_the_code_says() -> None:
    """`PYTHONPATH=tests python -m rules.generated` renews them."""
    marked = [(shown(path), name, text) for path in documents() for name, text in blocks(path)]
    stale = [(path, name) for path, name, text in marked if name not in GENERATORS or GENERATORS[name]() != text]
    assert stale == []


def test_every_generator_is_used_by_some_document() -> None:
    """A table that no document shows is not a document."""
    shown_names = {name for path in documents() for name, _ in blocks(path)}
    assert shown_names == set(GENERATORS)
