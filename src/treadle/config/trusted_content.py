"""Hashes the files that a treadle.toml loads or starts: trust in it covers their content.

Python is followed through the imports that its text shows, as far as they are files beside it. What a program does when
it runs is not looked at.
"""

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

from treadle.config.settings import Settings
from treadle.core.errors import ConfigError

FILES_MAX = 2_000
FILE_BYTES_MAX = 268_435_456
SOURCE_BYTES_MAX = 4_194_304
PIECE_BYTES = 1_048_576
MISSING = "missing"


def bound_files(settings: Settings, folder: Path) -> dict[str, str]:
    """Return the sha256 of every file that the settings of a file in this folder load or start, by its real path.

    Raises: ConfigError, when they are too many to be looked at.
    """
    found: dict[str, str] = {}
    waiting = list(dict.fromkeys(os.path.realpath(path) for path in _named(settings, folder)))
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        if len(found) == FILES_MAX:
            raise ConfigError(
                f"the treadle.toml in {folder} loads or starts more than {FILES_MAX} files: too many to agree to",
                hint="install the Python of its tools as a package, or name the file with --config to use it unasked",
            )
        found[path] = _digest(path)
        if path.endswith(".py"):
            waiting.extend(os.path.realpath(each) for each in _imported(Path(path), folder))
    return found


def _named(settings: Settings, folder: Path) -> Iterator[Path]:
    for place in settings.tools.load:
        yield from _python(place, folder)
    for guest in settings.guest:
        yield folder / Path(guest.path).expanduser()
        yield folder / Path(guest.schema or f"{guest.path}.json").expanduser()
    for server in settings.mcp:
        # A program outside of the folder is the machine's own; what a repository brings along is bound.
        start = folder / Path(server.cwd).expanduser()
        for word in server.command:
            path = start / word
            if _is_file(path) and _is_inside(path, folder):
                yield path


def _python(place: str, folder: Path) -> Iterator[Path]:
    if place.endswith(".py") or os.sep in place:
        yield folder / Path(place).expanduser()
    else:
        yield from _module(place.split("."), folder)


def _module(parts: list[str], folder: Path) -> Iterator[Path]:
    """Yield the files that importing a module runs, as far as they are in this folder."""
    for depth in range(1, len(parts) + 1):
        stem = folder.joinpath(*parts[:depth])
        # A compiled module beside a source comes before it.
        for suffix in all_suffixes():
            yield from filter(_is_file, (stem / f"__init__{suffix}", stem.with_name(f"{stem.name}{suffix}")))


def _imported(file: Path, folder: Path) -> Iterator[Path]:
    """Yield the files beside a Python file, or in the folder, that its imports name."""
    try:
        if file.stat().st_size > SOURCE_BYTES_MAX:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        for name, level in _names(node):
            tops = [file.parents[level - 1]] if 0 < level <= len(file.parents) else [file.parent, folder]
            for top in tops:
                yield from _module(name.split("."), top)


def _names(node: ast.AST) -> Iterable[tuple[str, int]]:
    if isinstance(node, ast.Import):
        return [(each.name, 0) for each in node.names]
    if isinstance(node, ast.ImportFrom):
        prefix = f"{node.module}." if node.module else ""
        return [(prefix + each.name, node.level) for each in node.names]
    return ()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _is_inside(path: Path, folder: Path) -> bool:
    # By either name: a link in the folder may point out of it, and what it is may be exchanged.
    places = (os.path.abspath(path), os.path.realpath(path))
    return any(place.startswith(os.path.join(os.path.realpath(folder), "")) for place in places)


def _digest(path: str) -> str:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > FILE_BYTES_MAX:
            return MISSING
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
    except (OSError, ValueError):
        return MISSING
    return digest.hexdigest()
