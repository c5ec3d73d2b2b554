"""ARCHITECTURE.md against the tree: its picture has every room, and every path it names leads somewhere."""

import re

from rules.tree import ROOT, SOURCE

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^  ([a-z_]+)/ +(.*)$")
_FOLDER = re.compile(r"\b([a-z]+)/(?![a-z{`])")
_PATH = re.compile(r"`((?:[a-z0-9_]+/)+[a-z0-9_]*(?:\.[a-z]+)?)`")
_DECISION = re.compile(r"\bdecisions/([0-9]{4})\b")


def picture() -> dict[str, str]:
    """Return the rooms of the picture, each with what is said of it."""
    rooms: dict[str, str] = {}
    room = ""
    for line in next(block for block in TEXT.split("```") if "src/treadle/" in block).splitlines()[2:]:
        found = _ROW.match(line)
        room = found[1] if found else room
        rooms[room] = f"{rooms.get(room, '')} {found[2] if found else line}"
    rooms.pop("", None)
    return rooms


def test_the_picture_has_every_room() -> None:
    """A room that is not in it would not be found."""
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert set(picture()) == rooms


def test_the_folders_in_the_picture_are_there() -> None:
    """Each below the room that it is said of."""
    named = {(room, name) for room, words in picture().items() for name in _FOLDER.findall(words)}
    assert named
    assert sorted((room, name) for room, name in named if not (SOURCE / room / name).is_dir()) == []


def test_every_path_that_is_named_leads_somewhere() -> None:
    """In the package, or in the project."""
    paths = _PATH.findall(TEXT)
    assert paths
    assert [path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists()] == []
    written = {path.name[:4] for path in (ROOT / "docs" / "decisions").iterdir()}
    assert set(_DECISION.findall(TEXT)) - written == set()
