"""Finds what git takes for a repository, and what in one makes git run programs. Standard library only.

A repository is a `.git` (folder, file or link), or any folder with a HEAD and either objects and refs or a commondir:
git finds those too, and obeys their settings. `State` is what stands at a path, as far as it can be put back.
"""

import contextlib
import dataclasses
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from treadle.tools.sandbox.protected_paths import GIT, folded

State = tuple[Any, ...]
"""("file", mode, bytes), ("folder", mode, {name: State}), ("link", target), or a sign of what is too large to keep."""

Ident = tuple[int, int]

OPENING = ("HEAD", "commondir")
"""Without the first a folder is no repository; the second leads to settings elsewhere."""
RUNNING_PARTS = ("config", "config.worktree", "commondir", "gitdir", "hooks", "info")
"""What git runs, or where it finds what to run. Never written by a command."""
RESUMED_PARTS = ("rebase-merge", "rebase-apply", "sequencer")
"""What git continues with on request; only a command that may write the repository writes it."""
EMPTY_PARTS = ("hooks", "info")
"""Those that git takes no offence at when they are empty folders."""
FILE_BYTES_MAX = 1_048_576
STATE_FILES_MAX = 2_000
SETTINGS_DEPTH_MAX = 4
POINTER_BYTES_MAX = 4_096
_SECTION = re.compile(r'^\s*\[\s*([\w.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]\s*')
_SETTING = re.compile(r"^\s*([A-Za-z][\w-]*)\s*(?:=\s*(.*?)\s*)?$")
_VALUE = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"?|(?P<comment>[#;].*)|(?P<plain>(?:[^"\\#;]|\\.)+)')
_CONTINUED = re.compile(r"\\\r?\n")
_RUN_KEYS = frozenset(
    (
        *("fsmonitor", "sshcommand", "editor", "pager", "askpass", "attributesfile", "external", "command", "textconv"),
        *("clean", "smudge", "process", "driver", "helper", "program"),
    )
)


@dataclasses.dataclass
class FoundRepositories:
    """The repositories below some folders: `markers` are `.git` entries, `bare` folders that look like one.

    `unseen` are the folders that could not be looked into.
    """

    markers: dict[str, Ident] = dataclasses.field(default_factory=dict[str, Ident])
    bare: dict[str, Ident] = dataclasses.field(default_factory=dict[str, Ident])
    unseen: set[str] = dataclasses.field(default_factory=set[str])
    _names: tuple[str, ...] = ()
    _parts: dict[Ident, dict[str, State]] = dataclasses.field(default_factory=dict[Ident, dict[str, State]])
    _files: dict[str, State] = dataclasses.field(default_factory=dict[str, State])

    def everything(self) -> list[str]:
        """Return all of them."""
        return [*self.markers, *self.bare]

    def folders(self) -> list[str]:
        """Return those that are folders and stand in no other."""
        found = [path for path in self.everything() if os.path.isdir(path) and not os.path.islink(path)]
        return [path for path in found if not any(path.startswith(f"{other}/") for other in found)]

    def remember(self, *, is_writing: bool) -> None:
        """Remember what the repositories run, to know later whether it was changed."""
        self._names = _part_names(is_writing=is_writing)
        for path, ident in (*self.markers.items(), *self.bare.items()):
            if os.path.isdir(path) and not os.path.islink(path):
                there = [(name, state_of(f"{path}/{name}")) for name in self._names]
                self._parts[ident] = {name: state for name, state in there if state is not None}
            elif (state := state_of(path)) is not None:
                self._files[path] = state

    def knows(self, path: str) -> bool:
        """Return whether a repository that is there now was there before, here or where its folder has been."""
        if os.path.islink(path) or not os.path.isdir(path):
            state = state_of(path)
            return self._files.get(path) == state or (ident_of(path) in self.markers.values() and self._is_same(state))
        return ident_of(path) in self._parts

    def _is_same(self, state: State | None) -> bool:
        return state in self._files.values()

    def changes(self, now: "FoundRepositories") -> Iterator[tuple[str, State | None]]:
        """Return what git runs in the repositories that were there before, with what it was."""
        for path, ident in (*now.markers.items(), *now.bare.items()):
            for name in self._names if ident in self._parts else ():
                yield f"{path}/{name}", self._parts[ident].get(name)
        moved = {ident_of(path) for path in now.markers if path not in self._files}
        for path, state in self._files.items():
            if self.markers.get(path) not in moved and os.path.isdir(os.path.dirname(path)):
                yield path, state


def _part_names(*, is_writing: bool) -> tuple[str, ...]:
    return RUNNING_PARTS if is_writing else (*RUNNING_PARTS, *RESUMED_PARTS)


def is_marker(path: str) -> bool:
    """Return whether git looks for a path by its name."""
    return folded(os.path.basename(path)) == GIT


def parts_of(folder: str, *, is_writing: bool) -> list[str]:
    """Return what is there of what git runs in a repository and in those that it holds."""
    inner = [folder, *_inner(folder)]
    paths = [f"{each}/{name}" for each in inner for name in _part_names(is_writing=is_writing)]
    return [path for path in paths if os.path.lexists(path)]


def find(tops: Iterable[str], before: FoundRepositories | None = None) -> FoundRepositories:
    """Search every folder below the tops; into one that has been closed to its owner since `before` too."""
    found = FoundRepositories()
    waiting = list(tops)
    while waiting:
        folder = waiting.pop()
        try:
            below = _look(folder, found)
        except OSError as error:
            # Gone since, closed, or a path too long to be opened.
            is_new = before is not None and folder not in before.unseen and isinstance(error, PermissionError)
            below = _opened(folder, found) if is_new else None
            if below is None:
                if not isinstance(error, FileNotFoundError):
                    found.unseen.add(folder)
                continue
        waiting += below
    for path in [*found.markers, *found.bare]:
        for inner in _inner(path) if os.path.isdir(path) else ():
            found.bare[inner] = ident_of(inner)
    return found


def _opened(folder: str, found: FoundRepositories) -> list[str] | None:
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
        return _look(folder, found)
    return None


def _look(folder: str, found: FoundRepositories) -> list[str]:
    """Note the repositories in one folder and return the folders to search next."""
    names: set[str] = set()
    below: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            # Cheap for nearly all names: whatever folds to one of these begins or ends unlike others.
            name = folded(name) if not name.isascii() or name[:1] in ".gG" else name.casefold()
            names.add(name)
            if name == GIT:
                found.markers[entry.path] = ident_of(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
    if "head" in names and (names >= {"objects", "refs"} or "commondir" in names):
        found.bare[folder] = ident_of(folder)
        common = _read_pointer(f"{folder}/commondir")
        target = os.path.realpath(os.path.join(folder, common)) if common else ""
        if target and os.path.isdir(target) and target not in found.markers:
            found.bare[target] = ident_of(target)
    return below


def _inner(folder: str) -> list[str]:
    """Return the repositories of submodules and worktrees inside a repository."""
    found: list[str] = []
    waiting = [f"{folder}/modules", f"{folder}/worktrees"]
    while waiting:
        place = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            names: set[str] = set()
            below: list[str] = []
            for entry in entries:
                names.add(entry.name.casefold())
                if entry.is_dir(follow_symlinks=False) and entry.name not in ("objects", "refs", "logs", "hooks"):
                    below.append(entry.path)
            if names & {"head", "commondir"}:
                found.append(place)
            waiting += below
    return found


def named_by_settings(found: FoundRepositories, tops: list[str]) -> list[str]:
    """Return what the settings of the repositories make git run or read, as far as it lies below the tops."""
    named: list[str] = []
    for path in found.everything():
        if os.path.isdir(path):
            base = os.path.dirname(path) if is_marker(path) else path
            for name in ("config", "config.worktree"):
                named += _named_in(f"{path}/{name}", base, SETTINGS_DEPTH_MAX)
    inside = [place for place in named if any(place.startswith(top.rstrip("/") + "/") for top in tops)]
    return [place for place in dict.fromkeys(inside) if not any(top.startswith(place + "/") for top in tops)]


def named_above(top: str, name: str) -> list[str]:
    """Return what the settings name of the repositories that a path below a top lies in."""
    parts = name.split("/")[:-1]
    folders = ["/".join([top, *parts[:depth]]) for depth in range(len(parts) + 1)]
    found = FoundRepositories(
        markers={path: ident_of(path) for each in folders if os.path.isdir(path := f"{each}/{GIT}")}
    )
    return named_by_settings(found, [top])


def completed_by(top: str, name: str) -> str | None:
    """Return the folder that is a repository, or would become one, with what is written at a path below a top."""
    parts = name.split("/")
    for depth in range(len(parts)):
        folder = "/".join([top, *parts[:depth]])
        names = {parts[depth].casefold()}
        with contextlib.suppress(OSError):
            names |= {each.casefold() for each in (*OPENING, "objects", "refs") if os.path.lexists(f"{folder}/{each}")}
        if "head" in names and (names >= {"objects", "refs"} or "commondir" in names):
            return "/".join(parts[:depth]) or "."
    return None


def _named_in(file: str, base: str, depth: int) -> list[str]:
    """Read one file of settings: its includes, its folder of hooks, and the files in commands that it names."""
    named: list[str] = []
    section = ""
    for line in _lines(file):
        if head := _SECTION.match(line):
            section = head[1].casefold()
            line = line[head.end() :]
        setting = _SETTING.match(line)
        if setting is None or not setting[2]:
            continue
        key, value = setting[1].casefold(), _value(setting[2])
        if key == "path" and section in ("include", "includeif"):
            place = os.path.normpath(os.path.join(os.path.dirname(file), value))
            named += [place, *(_named_in(place, base, depth - 1) if depth else ())]
        elif key == "hookspath":
            named.append(os.path.normpath(os.path.join(base, value)))
        elif key in _RUN_KEYS or section == "alias":
            named += [place for word in _words(value) if os.path.isfile(place := os.path.normpath(f"{base}/{word}"))]
    return named


def _value(text: str) -> str:
    """Return a value as git reads it: quotes may stand anywhere in it, and a comment behind it."""
    found: list[str] = []
    for piece in _VALUE.finditer(text):
        if piece["comment"]:
            break
        found.append(piece["quoted"] if piece["plain"] is None else piece["plain"])
    return re.sub(r"\\(.)", r"\1", "".join(found)).strip()


def _words(value: str) -> list[str]:
    try:
        return [word.lstrip("!") for word in shlex.split(value.replace("\\", ""))]
    except ValueError:
        return value.split()


def _lines(file: str) -> list[str]:
    state = state_of(file)
    if state is None or state[0] != "file":
        return []
    text: str = state[2].decode("utf-8", "surrogateescape")
    # A line continues behind a backslash, but not within a comment: both readings count.
    return [*text.splitlines(), *(_CONTINUED.sub("", text).splitlines() if _CONTINUED.search(text) else ())]


def _read_pointer(file: str) -> str:
    state = state_of(file)
    if state is None or state[0] != "file" or len(state[2]) > POINTER_BYTES_MAX:
        return ""
    return state[2].decode("utf-8", "surrogateescape").removeprefix("gitdir:").strip()


def state_of(path: str) -> State | None:
    """Return what stands at a path, or nothing."""
    return _state(path, [STATE_FILES_MAX])


def _state(path: str, room: list[int]) -> State | None:
    room[0] -= 1
    try:
        status = os.lstat(path)
        kind, mode = status.st_mode, stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(kind):
            return ("link", os.readlink(path))
        if stat.S_ISDIR(kind) and room[0] > 0:
            names = sorted(os.listdir(path))
            return ("folder", mode, {name: _state(f"{path}/{name}", room) for name in names})
        if stat.S_ISREG(kind) and status.st_size <= FILE_BYTES_MAX and room[0] > 0:
            with open(path, "rb") as file:
                return ("file", mode, file.read())
    except FileNotFoundError:
        return None
    except OSError:
        return ("closed",)
    return ("large", status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def differences(path: str, before: State | None, now: State | None) -> Iterator[tuple[str, State | None, State | None]]:
    """Return the smallest paths at which two states differ, with both."""
    if before == now:
        return
    if before is None or now is None or before[0] != "folder" or now[0] != "folder":
        yield path, before, now
        return
    for name in sorted({*before[2], *now[2]}):
        yield from differences(f"{path}/{name}", before[2].get(name), now[2].get(name))


def restore(path: str, state: State) -> bool:
    """Put back what stood at a path where nothing stands now; return whether that was possible."""
    try:
        match state:
            case ("link", target):
                os.symlink(target, path)
            case ("file", mode, content):
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                with open(fd, "wb") as file:
                    file.write(content)
                    os.fchmod(file.fileno(), mode)
            case ("folder", mode, children):
                os.mkdir(path, 0o700)
                done = [restore(f"{path}/{name}", each) for name, each in children.items() if each is not None]
                os.chmod(path, mode)
                return all(done)
            case _:
                return False
    except OSError:
        return False
    return True


def ident_of(path: str) -> Ident:
    """Return what tells one file or folder from another, wherever it is moved."""
    try:
        status = os.lstat(path)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)
