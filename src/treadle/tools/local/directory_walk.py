"""Walks the files below a root by a pattern, without those that `.gitignore` excludes. Links are never walked into."""

import os
import stat
from collections.abc import Callable

import msgspec

from treadle.core.errors import ToolError
from treadle.tools.local.gitignore import IgnoreFile, is_ignored, read_ignore
from treadle.tools.local.glob_pattern import Pattern, States
from treadle.tools.local.safe_open import MASKED_FOLDERS, Root

MATCHES_MAX = 100_000
IGNORE_BYTES_MAX = 262_144
CHECK_EVERY = 256
NEVER_WALKED = (".git", *MASKED_FOLDERS)


class WalkFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A directory still to be walked."""

    names: tuple[str, ...]
    states: States
    ignores: tuple[IgnoreFile, ...]


class Walk:
    """One walk: collects matches until it is complete or `has_to_stop` returns true.

    `unread` counts folders that could not be opened.
    """

    def __init__(self, root: Root, pattern: Pattern, has_to_stop: Callable[[], bool]) -> None:
        self.found: list[tuple[str, float]] = []
        self.is_complete = True
        self.unread = 0
        self._root = root
        self._pattern = pattern
        self._has_to_stop = has_to_stop
        self._seen = 0

    def run(self, base: tuple[str, ...]) -> None:
        """Walk all entries below the base directory.

        Raises: ToolError, when the base cannot be opened.
        """
        ignores: tuple[IgnoreFile, ...] = ()
        for depth in range(len(base)):
            ignores = self._with_ignore(base[:depth], ignores)
        pending = [WalkFrame(names=base, states=self._pattern.start, ignores=ignores)]
        while pending and self.is_complete:
            frame = pending.pop()
            try:
                fd = self._root.open("/".join(frame.names), os.O_RDONLY | os.O_DIRECTORY).fd
            except ToolError:
                if frame.names == base:
                    raise
                self.unread += 1
                continue
            try:
                pending.extend(self._enter(frame, fd))
            finally:
                os.close(fd)

    def _enter(self, frame: WalkFrame, fd: int) -> list[WalkFrame]:
        ignores = self._with_ignore(frame.names, frame.ignores)
        below: list[WalkFrame] = []
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
                    below.append(WalkFrame(names=names, states=states, ignores=ignores))
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


def printable(name: str) -> str:
    """Escape a file name so that it fits on one line and is valid Unicode."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
