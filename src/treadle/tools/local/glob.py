"""`glob`: find files by pattern below the root. Links are listed when they lead to a file inside; never walked into."""

import os
import stat
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from treadle.canon.errors import ToolError
from treadle.canon.json import write_json
from treadle.canon.tools import Envelope
from treadle.tools.context import ToolContext
from treadle.tools.envelope import Answer
from treadle.tools.local.ignore import IgnoreFile, is_ignored, read_ignore
from treadle.tools.local.opener import MASKED_FOLDERS, Root
from treadle.tools.local.pattern import BadPattern, Pattern, States, glob_pattern

LIMIT_DEFAULT = 200
LIMIT_MAX = 2_000
DEADLINE_S = 10.0
RECENT_S = 86_400.0
MATCHES_MAX = 100_000
IGNORE_BYTES_MAX = 262_144
CHECK_EVERY = 256
NEVER_WALKED = (".git", *MASKED_FOLDERS)
ENVELOPE_BYTES = 200
"""What the JSON around the paths takes at most."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A directory still to be walked."""

    names: tuple[str, ...]
    states: States
    ignores: tuple[IgnoreFile, ...]


class Walk:
    """One walk: collects matches until it is through, out of time, or nobody waits any more."""

    def __init__(self, root: Root, pattern: Pattern, has_to_stop: Callable[[], bool]) -> None:
        self.found: list[tuple[str, float]] = []
        self.is_complete = True
        self._root = root
        self._pattern = pattern
        self._has_to_stop = has_to_stop
        self._seen = 0

    def run(self, base: tuple[str, ...]) -> None:
        """Walk everything below the base directory.

        Raises: ToolError, when the base cannot be opened.
        """
        ignores: tuple[IgnoreFile, ...] = ()
        for depth in range(len(base)):
            ignores = self._with_ignore(base[:depth], ignores)
        pending = [Frame(names=base, states=self._pattern.start, ignores=ignores)]
        while pending and self.is_complete:
            frame = pending.pop()
            try:
                fd = self._root.open("/".join(frame.names), os.O_RDONLY | os.O_DIRECTORY).fd
            except ToolError:
                if frame.names == base:
                    raise
                continue
            try:
                pending.extend(self._enter(frame, fd))
            finally:
                os.close(fd)

    def _enter(self, frame: Frame, fd: int) -> list[Frame]:
        ignores = self._with_ignore(frame.names, frame.ignores)
        below: list[Frame] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                self._count()
                if not self.is_complete:
                    break
                states = self._pattern.step(frame.states, entry.name)
                if not states:
                    continue
                names = (*frame.names, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if not is_folder and not self._pattern.accepts(states):
                    continue
                if is_ignored(ignores, names, is_folder=is_folder):
                    continue
                if not is_folder:
                    self._take(names, entry)
                elif entry.name not in NEVER_WALKED:
                    below.append(Frame(names=names, states=states, ignores=ignores))
        return below

    def _count(self) -> None:
        self._seen += 1
        if len(self.found) >= MATCHES_MAX or (self._seen % CHECK_EVERY == 0 and self._has_to_stop()):
            self.is_complete = False

    def _take(self, names: tuple[str, ...], entry: os.DirEntry[str]) -> None:
        path = "/".join(names)
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if stat.S_ISREG(status.st_mode) or (entry.is_symlink() and self._leads_inside(path)):
            self.found.append((path, status.st_mtime))

    def _leads_inside(self, path: str) -> bool:
        try:
            fd = self._root.open(path).fd
        except ToolError:
            return False
        try:
            return stat.S_ISREG(os.fstat(fd).st_mode)
        finally:
            os.close(fd)

    def _with_ignore(self, names: tuple[str, ...], ignores: tuple[IgnoreFile, ...]) -> tuple[IgnoreFile, ...]:
        try:
            fd = self._root.open("/".join((*names, ".gitignore"))).fd
        except ToolError:
            return ignores
        try:
            text = os.read(fd, IGNORE_BYTES_MAX).decode("utf-8", "replace")
        except OSError:
            return ignores
        finally:
            os.close(fd)
        return (*ignores, read_ignore(text, len(names)))


def make_glob(root: Root, now: Callable[[], float] = time.time) -> Callable[..., Answer]:
    """Return the function behind the tool, for one root."""

    def glob(
        context: ToolContext,
        pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)],
        path: str = ".",
        hidden: bool = False,
        limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    ) -> Answer:
        """Find files by pattern, recently changed ones first. Files that .gitignore leaves out are not found.

        Args:
            pattern: What the paths look like, such as *.py or src/**/*.{js,ts}; ** crosses directories.
            path: The directory to look in, relative to the root.
            hidden: Also find names that start with a dot.
            limit: How many paths to return at most.
        """
        deadline = time.monotonic() + DEADLINE_S
        try:
            compiled = glob_pattern(pattern, hidden=hidden)
        except BadPattern as error:
            raise ToolError(f"Invalid pattern: {error}", code="invalid_pattern") from None
        walk = Walk(root, compiled, lambda: context.cancelled or time.monotonic() > deadline)
        walk.run(_base(root, path))
        recent = now() - RECENT_S
        paths = [name for name, _ in sorted(walk.found, key=lambda each: (each[1] < recent, each[0]))]
        return _answer(paths, limit, context.output_bytes_max, walk.is_complete)

    return glob


def _base(root: Root, path: str) -> tuple[str, ...]:
    """Return the names of the directory to look in, as they are once links are followed."""
    opened = root.open(path)
    try:
        if not stat.S_ISDIR(os.fstat(opened.fd).st_mode):
            raise ToolError(f"Not a directory: {path}", code="not_a_directory")
    finally:
        os.close(opened.fd)
    return () if opened.name == "." else tuple(opened.name.split("/"))


def _answer(paths: list[str], limit: int, bytes_max: int, is_complete: bool) -> Answer:
    shown: list[str] = []
    room = bytes_max - ENVELOPE_BYTES
    for path in paths[:limit]:
        line = printable(path)
        room -= len(write_json(line))
        if room < 0:
            break
        shown.append(line)
    body: dict[str, Any] = {"output": "\n".join(shown), "count": len(shown)}
    if len(shown) < len(paths) or not is_complete:
        body["truncated"] = True
    if not is_complete:
        body["code"] = "stopped_early"
    elif len(shown) == limit < min(len(paths), LIMIT_MAX):
        body["next"] = {"limit": min(len(paths), LIMIT_MAX)}
    summary = f"{len(shown)} file{'' if len(shown) == 1 else 's'} found"
    return Answer(envelope=Envelope(ok=True, data=msgspec.Raw(write_json(body))), summary=summary)


def printable(name: str) -> str:
    """Write a file name so that it stays on its line and is valid Unicode."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
