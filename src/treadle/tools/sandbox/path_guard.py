"""Protects what other programs execute or obey (`protected_paths`) while a command runs. Standard library only.

Before the command: what is protected is found and remembered; with mounts of its own (L3) it becomes read-only, and the
absent names of the folder's top are held by empty folders. After the command, when nothing of it is alive: what is new
is moved aside (`.git.blocked`), what was changed is put back. The supervisor does both, so also a command that was
cancelled, or whose gateway was killed, leaves no repository behind that could run something.
"""

import contextlib
import fcntl
import os
import time

from treadle.tools.sandbox import git_repositories as git_folders
from treadle.tools.sandbox.git_repositories import State
from treadle.tools.sandbox.helper_messages import CommandOrder
from treadle.tools.sandbox.protected_paths import BLOCKED, GIT, PROTECTED, is_allowed

MARK_NS = 1_000_000_731
"""The time of change of an empty folder that holds a name. It is gone as soon as anything is made in it."""
LOCK_TRIES = 100
LOCK_PAUSE_S = 0.01
ASIDE_MAX = 1_000
NOTES_MAX = 20
SHOWN_CHARS_MAX = 200


class PathGuard:
    """Guards the writable folders of one order."""

    def __init__(self, order: CommandOrder) -> None:
        self._order = order
        self._tops = [os.path.realpath(top) for top in order.guard if top in order.write and os.path.isdir(top)]
        self._held: list[str] = []
        self._locks: dict[str, int] = {}
        self._names: list[str] = []
        self._states: dict[str, State] = {}
        self._covered: dict[str, git_folders.Ident] = {}
        self._found = git_folders.FoundRepositories()
        self._notes: list[str] = []
        # Without knowing what was there, everything would be taken for new.
        self._is_ready = False

    def begin(self) -> None:
        """Record what there is, and add to the order what is to be mounted. Raises: OSError."""
        self._found = git_folders.find(self._tops)
        self._names = self._listed()
        self._found.remember(is_writing=self._order.git)
        if self._order.level > 2:
            self._cover()
        for path in self._names:
            if not self._is_covered(path) and (state := git_folders.state_of(path)) is not None:
                self._states[path] = state
        self._is_ready = True

    def end(self) -> list[str]:
        """Undo what must not stay, and return what that was, in words."""
        try:
            if self._is_ready:
                self._settle()
        finally:
            self._release()
        left = len(self._notes) - NOTES_MAX
        return [*self._notes[:NOTES_MAX], *([f"{left} more"] if left > 0 else [])]

    def _listed(self) -> list[str]:
        """Return every protected path of the tops and of the folders that are repositories, there or not."""
        folders = dict.fromkeys([*self._tops, *(os.path.dirname(path) for path in self._found.markers)])
        rows = [row.name for row in PROTECTED if row.name != GIT]
        paths = [f"{folder}/{name}" for folder in folders for name in rows]
        # What the settings of a repository name runs like its own hooks.
        paths += git_folders.named_by_settings(self._found, self._tops)
        paths += [target for path in paths if (target := self._target(path))]
        return [path for path in dict.fromkeys(paths) if not is_allowed(path, self._order.allowed)]

    def _cover(self) -> None:
        """Have everything that is there mounted read-only, and what is absent at the top held by an empty folder."""
        order = self._order
        there = [*(path for path in self._names if os.path.lexists(path)), *self._found.everything()]
        if order.git:
            pinned = [path for path in self._found.folders() if not os.path.islink(path)]
            order.pinned.extend(pinned)
            there = [path for path in there if path not in pinned]
            there += [path for folder in pinned for path in git_folders.parts_of(folder, is_writing=True)]
        fixed = [place for path in there if (place := self._mountable(path))]
        order.fixed.extend(dict.fromkeys(fixed))
        # Without the lock nothing is held, and what is made is moved aside afterwards.
        for path in [path for top in self._tops if self._lock(top) for path in self._holdable(top)]:
            is_open = is_allowed(path, order.allowed) or _opens(path, order.allowed)
            if not is_open and path not in order.pinned:
                self._hold(path)
        order.fixed.extend(path for path in self._held if path not in order.fixed)
        # A person may replace what is mounted, and that stands; a command can only move the folder around it.
        self._covered = {path: git_folders.ident_of(os.path.dirname(path)) for path in (*fixed, *self._held)}

    def _mountable(self, path: str) -> str:
        """Return what is to be mounted for a path: a link itself cannot be, where it leads can."""
        if is_allowed(path, self._order.allowed) or _opens(path, self._order.allowed):
            return ""
        return self._target(path) if os.path.islink(path) else path

    def _target(self, path: str) -> str:
        """Return where a link leads, if that is something inside the folders and not one of them."""
        real = os.path.realpath(path) if os.path.islink(path) else ""
        is_inside = any(real != top and _is_in(real, top) for top in self._tops)
        return real if is_inside and os.path.exists(real) and not _opens(real, self._tops) else ""

    def _hold(self, path: str) -> None:
        """Make an empty folder of an absent name. An empty folder that is there already holds it too."""
        try:
            os.mkdir(path, 0o755)
            os.utime(path, ns=(MARK_NS, MARK_NS))
        except FileExistsError:
            if not _is_empty(path):
                return  # The folder is a person's own, and was found already.
        except OSError:
            return  # There is no folder for it, or none that may be written: the command cannot make it either.
        self._held.append(path)

    def _lock(self, top: str) -> bool:
        """Share the lock of a folder whose names are held: the process that has it alone at the end releases them."""
        with contextlib.suppress(OSError):
            fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._locks[top] = fd
            for _ in range(LOCK_TRIES):
                try:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(LOCK_PAUSE_S)
                else:
                    return True
        return False

    def _release(self) -> None:
        """Remove the empty folders, unless another command runs here: then that one does it."""
        for top, fd in self._locks.items():
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path in self._holdable(top):
                    with contextlib.suppress(OSError):
                        if os.lstat(path).st_mtime_ns == MARK_NS:
                            os.rmdir(path)
            os.close(fd)

    def _holdable(self, top: str) -> list[str]:
        inner = [f"{folder}/{name}" for folder in self._order.pinned for name in git_folders.EMPTY_PARTS]
        return [*(f"{top}/{row.name}" for row in PROTECTED if row.is_held), *inner]

    def _settle(self) -> None:
        found = git_folders.find(self._tops, before=self._found)
        # What could not be seen before may have been there: it is a person's.
        spared = [*self._order.allowed, *self._found.unseen]
        for path in sorted(found.everything(), key=len):
            if not self._is_covered(path) and not self._found.knows(path) and not is_allowed(path, spared):
                self._move_repository(path)
        for path in self._names:
            if not self._is_covered(path):
                self._compare(path, self._states.get(path))
        for path, state in self._found.changes(found):
            if not self._is_covered(path) and not is_allowed(path, self._order.allowed):
                self._compare(path, state)
        if unseen := found.unseen - self._found.unseen:
            self._notes.append(f"{len(unseen)} folders could not be looked into for new repositories")

    def _compare(self, top: str, before: State | None) -> None:
        """Put a protected path back as it was; what stands there now is moved aside."""
        for path, old, now in git_folders.differences(top, _filled(before), _filled(git_folders.state_of(top))):
            if is_allowed(path, self._order.allowed) or _opens(path, self._order.allowed):
                continue
            if now is not None:
                self._move(path)
            if old is not None:
                verb = "put back as it was" if git_folders.restore(path, old) else "could not be put back"
                self._notes.append(f"{self._shown(path)} is protected and was {verb}")
        if before is None:
            _remove_empty(top)

    def _move_repository(self, path: str) -> None:
        """Move a new repository aside; its HEAD too, since git takes any folder with one for a repository."""
        if not os.path.lexists(path):
            return
        if os.path.isdir(path) and not os.path.islink(path):
            for name in git_folders.OPENING:
                if os.path.lexists(f"{path}/{name}"):
                    self._move(f"{path}/{name}")
        if git_folders.is_marker(path):
            self._move(path)

    def _move(self, path: str) -> None:
        for number in range(1, ASIDE_MAX):
            target = f"{path}{BLOCKED}{'' if number == 1 else f'-{number}'}"
            if not os.path.lexists(target):
                try:
                    os.rename(path, target)
                except OSError as error:
                    self._notes.append(f"{self._shown(path)} is protected and could not be moved: {error.strerror}")
                    return
                self._notes.append(f"{self._shown(path)} is protected and was moved to {os.path.basename(target)}")
                return

    def _is_covered(self, path: str) -> bool:
        while len(path) > 1:
            folder: str = os.path.dirname(path)
            if path in self._covered and git_folders.ident_of(folder) == self._covered[path]:
                return True
            path = folder
        return False

    def _shown(self, path: str) -> str:
        top = next((each for each in self._tops if _is_in(path, each)), "/")
        shown = os.path.relpath(path, top)
        return shown if len(shown) <= SHOWN_CHARS_MAX else f"…{shown[-SHOWN_CHARS_MAX:]}"


def _is_in(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _opens(path: str, allowed: list[str]) -> bool:
    """Return whether something inside a path was allowed: then it cannot be mounted read-only as a whole."""
    return any(_is_in(each, path) for each in allowed)


def _remove_empty(path: str) -> None:
    """Remove an empty folder that holds no name for another command."""
    with contextlib.suppress(OSError):
        if os.lstat(path).st_mtime_ns != MARK_NS:
            os.rmdir(path)


def _filled(state: State | None) -> State | None:
    """Return a state, and none for an empty folder: that is what holds a name for another command."""
    return None if state is not None and state[0] == "folder" and not state[2] else state


def _is_empty(path: str) -> bool:
    try:
        return not os.path.islink(path) and not os.listdir(path)
    except OSError:
        return False
