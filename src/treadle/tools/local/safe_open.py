"""Opens files below one directory and nowhere else, even if other processes swap links during the call.

A `Root` holds one directory descriptor. Every path is opened relative to it, either by openat2 with RESOLVE_BENEATH, or
by walking the components with O_NOFOLLOW; a probe decides which. Links that stay inside are followed, absolute ones
and those that lead outside are refused. A hard link to a file outside cannot be distinguished from a file and is read:
making one requires the right to write here.
"""

import contextlib
import ctypes
import errno
import functools
import os
import stat
import sys
import weakref
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError, ToolError
from treadle.core.tool_definitions import OUTSIDE_ROOT
from treadle.tools.sandbox import git_repositories as git_folders
from treadle.tools.sandbox.protected_paths import find_protected, is_allowed

PATH_BYTES_MAX = 4_095
ROOT_GONE = "root_gone"
LINKS_MAX = 40
PARENTS_MAX = 8
MASKED_NAMES = (".env", ".env.*", "*.pem", "id_*", "secret.key")
MASKED_FOLDERS = (".treadle",)

_OPENAT2 = 437
_NO_MAGICLINKS = 0x02
_BENEATH = 0x08
_RACE_TRIES = 16
LOOK = getattr(os, "O_PATH", 0)
"""O_PATH, which opens a file without reading it; 0 on systems that lack it."""
_FOLDER = LOOK | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_REFUSALS = {
    errno.EACCES: ("permission_denied", "Permission denied: {}"),
    errno.EPERM: ("permission_denied", "Permission denied: {}"),
    errno.ELOOP: ("too_many_links", "Too many links, or one that may not be followed: {}"),
    errno.ENAMETOOLONG: ("invalid_path", "A name in the path is too long: {}"),
    errno.ENOENT: ("not_found", "File not found: {}"),
    errno.ENOTDIR: ("not_found", "File not found: {}"),
    errno.ENXIO: ("not_a_file", "Not a regular file: {}"),
    errno.EXDEV: (OUTSIDE_ROOT, "Outside the root: {}"),
}

_UNWRITABLE = frozenset({"read_only", "masked", "invalid_path", OUTSIDE_ROOT})
"""Codes of refusals that an approval cannot lift."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An open descriptor, and its name below the root with links resolved."""

    fd: int
    name: str


Opener = Callable[[int, str, int], Opened]


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root_fd: int, path: str, flags: int) -> Opened:
    """Open by openat2; the kernel keeps the whole resolution below the root.

    Raises: OSError, EXDEV when the path leads out.
    """
    how = _How(flags=flags | os.O_CLOEXEC, mode=0, resolve=_BENEATH | _NO_MAGICLINKS)
    for _ in range(_RACE_TRIES):
        fd = _syscall()(_OPENAT2, root_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return _named(root_fd, fd)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    # openat2 fails with EAGAIN on `..` while directories are renamed; walking does not have this problem.
    return open_walking(root_fd, path, flags)


def open_walking(root_fd: int, path: str, flags: int) -> Opened:
    """Open component by component: links are resolved by hand, `..` returns to a directory already open.

    Raises: OSError, EXDEV when the path leads out.
    """
    pending = _components(path)
    open_folders = [os.open(".", _FOLDER, dir_fd=root_fd)]
    names: list[str] = []
    links = 0
    try:
        while pending:
            part = pending.pop()
            if part == "..":
                _enter_parent(open_folders, names)
                continue
            try:
                fd = _open_part(part, _FOLDER if pending else flags | os.O_NOFOLLOW | os.O_CLOEXEC, open_folders[-1])
            except OSError as error:
                links += 1
                pending.extend(_read_link(part, open_folders[-1], error, links))
                continue
            names.append(part)
            if not pending:
                return Opened(fd=fd, name="/".join(names))
            open_folders.append(fd)
        return Opened(fd=os.open(".", flags | os.O_CLOEXEC, dir_fd=open_folders[-1]), name="/".join(names) or ".")
    finally:
        for fd in open_folders:
            os.close(fd)


@functools.cache
def best_opener() -> Opener:
    """Return the best way of opening that this system supports, by a probe."""
    if sys.platform != "linux":
        return open_walking
    probe = os.open("/", _FOLDER)
    try:
        os.close(open_beneath(probe, ".", os.O_RDONLY | os.O_DIRECTORY).fd)
    except OSError:
        return open_walking
    finally:
        os.close(probe)
    return open_beneath


class Root:
    """One directory that tools may read. `allow` are patterns of names or paths that are readable although masked.

    `hidden` are further name patterns to mask: the journal's own files.
    `writable` are the protected paths that the settings allow by name.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        allow: Sequence[str] = (),
        hidden: Sequence[str] = (),
        writable: Sequence[str] = (),
        opener: Opener | None = None,
    ) -> None:
        self.path = os.path.abspath(path)
        self.real_path = os.path.realpath(self.path)
        self.allow = tuple(allow)
        self.hidden = tuple(hidden)
        self.writable = tuple(os.path.normpath(each) for each in writable)
        self.masked_names = (*MASKED_NAMES, *self.hidden)
        self._opener = opener or best_opener()
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"the root of the file tools cannot be opened: {self.path}: {error.strerror}") from None
        self._closing = weakref.finalize(self, os.close, self._fd)

    def close(self) -> None:
        """Close the directory; otherwise it is closed with the object."""
        self._closing()

    def check_there(self) -> None:
        """Check that the root is still at its path: the open directory may have been removed or moved.

        Commands use the path, so without this they and the file tools would work in different folders.
        Raises: ToolError.
        """
        try:
            is_same = os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            message = f"The working folder {self.path} was removed or moved: nothing can be read or written there."
        except OSError as error:
            raise refusal(error, self.path) from None
        else:
            if is_same:
                return
            message = f"Something else was put in the place of the working folder {self.path} since it was opened."
        raise ToolError(message, code=ROOT_GONE, hint="The user must start again in the right folder.")

    def open(self, path: str, flags: int = _READ) -> Opened:
        """Open a regular file or a directory for reading.

        Raises: ToolError, with a message for the model; never OSError.
        """
        self.check_there()
        inner = self._inner(path)
        try:
            # Checked before it is really opened: a pipe could block, and closing a descriptor of a journal file would
            # drop all POSIX locks that SQLite holds on it in this process.
            seen = self._opener(self._fd, inner, flags & os.O_DIRECTORY | LOOK if LOOK else flags)
        except OSError as error:
            raise refusal(error, path) from None
        try:
            self._check(seen, path)
            return Opened(fd=reopen(seen.fd, flags), name=seen.name)
        except OSError as error:
            raise refusal(error, path) from None
        finally:
            os.close(seen.fd)

    def open_folder_of(self, path: str, *, make: bool = False, protected: bool = False) -> tuple[Opened, str]:
        """Open the folder that contains or will contain a file; return it with the file's name.

        With `make`, up to PARENTS_MAX missing folders are made. With `protected`, a person allowed this path by name;
        a link must not lead it elsewhere.
        Raises: ToolError, also for paths that may not be written.
        """
        inner = self._inner(path)
        # Check the path as given first, so that no folders are made for a refused write; then the resolved path.
        allowed = (*self.writable, *([os.path.normpath(inner)] if protected else []))
        self._check_writable(os.path.normpath(inner), path, allowed)
        folder, _, name = inner.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise ToolError(f"Not a file name: {path}", code="invalid_path")
        opened = self._open_or_make(folder, path, allowed) if make else self.open(folder or ".", _LIST)
        real = name if opened.name == "." else f"{opened.name}/{name}"
        try:
            self._check_writable(real, path, allowed)
        except ToolError:
            os.close(opened.fd)
            raise
        return opened, name

    def write_refusal(self, path: str, *, protected: bool) -> str:
        """Return why a write would be refused even if it were approved; "" when it may succeed."""
        try:
            os.close(self.open_folder_of(path, protected=protected)[0].fd)
        except ToolError as error:
            return error.message if error.info.code in _UNWRITABLE else ""
        return ""

    def _open_or_make(self, folder: str, path: str, allowed: Sequence[str]) -> Opened:
        names = [each for each in folder.split("/") if each not in ("", ".")]
        for missing in range(min(len(names), PARENTS_MAX) + 1):
            existing = len(names) - missing
            try:
                opened = self.open("/".join(names[:existing]) or ".", _LIST)
            except ToolError as error:
                if error.info.code != "not_found":
                    raise
                continue
            return self._make_below(opened, names[existing:], path, allowed)
        raise ToolError(f"More than {PARENTS_MAX} folders of the path are missing: {path}", code="not_found")

    def _make_below(self, opened: Opened, names: list[str], path: str, allowed: Sequence[str]) -> Opened:
        for name in names:
            try:
                inner = f"{opened.name}/{name}".removeprefix("./")
                self._check_writable(inner, path, allowed, is_folder=True)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=opened.fd)
                # O_NOFOLLOW: the folder just made may have been replaced by a link.
                fd = os.open(name, _LIST | os.O_NOFOLLOW, dir_fd=opened.fd)
            except OSError as error:
                raise refusal(error, path) from None
            finally:
                os.close(opened.fd)
            opened = Opened(fd=fd, name=f"{opened.name}/{name}".removeprefix("./"))
        return opened

    def _check_writable(self, name: str, path: str, allowed: Sequence[str], *, is_folder: bool = False) -> None:
        if self.is_masked(name, is_folder=False):
            raise ToolError(f"Not writable, it may hold secrets: {path}", code="masked")
        is_on_the_way = is_folder and any(each.startswith(f"{name}/") for each in allowed)
        if is_allowed(name, allowed) or is_on_the_way:
            return
        if why := self._protection(name):
            # A person approves the path they see, so the message names a link's target.
            how = "" if is_folder or name == os.path.normpath(self._inner(path)) else f'path="{name}" and '
            words = f"Protected, {why}: {path}. A person can allow it: call again with {how}protected=true."
            raise ToolError(words, code="read_only")

    def _protection(self, name: str) -> str:
        """Return why a path below the root is protected; "" if it is not."""
        row = find_protected(name)
        if row is not None:
            return row.why
        if (repository := git_folders.completed_by(self.real_path, name)) is not None:
            return f"git takes {repository} for a repository and runs what its settings name"
        named = git_folders.named_above(self.real_path, name)
        return "the settings of the git repository name it" if is_allowed(f"{self.real_path}/{name}", named) else ""

    def _inner(self, path: str) -> str:
        """Return the path relative to the root; paths that a system call would silently misread are refused."""
        if "\0" in path:
            raise ToolError("The path contains a NUL character.", code="invalid_path")
        size = len(os.fsencode(path))
        if size > PATH_BYTES_MAX:
            raise ToolError(f"The path is too long: {size} bytes.", code="invalid_path")
        if not path.startswith("/"):
            return path or "."
        for prefix in (self.path, self.real_path):
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return path[len(prefix) :].lstrip("/") or "."
        raise ToolError(f"Outside the root: {path}", code=OUTSIDE_ROOT)

    def _check(self, opened: Opened, path: str) -> None:
        mode = os.fstat(opened.fd).st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise ToolError(f"Not a regular file: {path}", code="not_a_file")
        if self.is_masked(opened.name, is_folder=stat.S_ISDIR(mode)):
            raise ToolError(f"Not readable, it may hold secrets: {path}", code="masked")

    def is_masked(self, name: str, *, is_folder: bool) -> bool:
        """Return whether a file may hold secrets. Ignores case, since some file systems do."""
        names = name.split("/")
        if any(fnmatchcase(name, pattern) or fnmatchcase(names[-1], pattern) for pattern in self.allow):
            return False
        folded = [each.casefold() for each in names]
        if any(folder in MASKED_FOLDERS for folder in (folded if is_folder else folded[:-1])):
            return True
        return not is_folder and any(fnmatchcase(folded[-1], pattern) for pattern in self.masked_names)


def reopen(fd: int, flags: int) -> int:
    """Open the file of an O_PATH descriptor for reading. Raises: OSError."""
    return os.open(f"/proc/self/fd/{fd}", flags & ~os.O_NOFOLLOW | os.O_CLOEXEC) if LOOK else os.dup(fd)


def refusal(error: OSError, path: str) -> ToolError:
    """Convert an OSError to a refusal with a message for the model."""
    code, words = _REFUSALS.get(error.errno or 0, ("io_error", f"{error.strerror or 'Cannot be read'}: {{}}"))
    return ToolError(words.format(path), code=code)


@functools.cache
def _syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def _named(root_fd: int, fd: int) -> Opened:
    try:
        top = os.readlink(f"/proc/self/fd/{root_fd}").rstrip("/")
        real = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        os.close(fd)
        raise
    if real != (top or "/") and not real.startswith(f"{top}/"):
        # Moved between the two readlink calls, so a name derived from both would be wrong.
        os.close(fd)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), real)
    return Opened(fd=fd, name=real[len(top) + 1 :].removesuffix(" (deleted)") or ".")


def _components(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _open_part(part: str, flags: int, folder_fd: int) -> int:
    fd = os.open(part, flags, dir_fd=folder_fd)
    if flags & LOOK and stat.S_ISLNK(os.fstat(fd).st_mode):
        # With O_PATH a link itself is opened; treat it as the ELOOP that opening for reading gives.
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
    return fd


def _enter_parent(open_folders: list[int], names: list[str]) -> None:
    if not names:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), "..")
    names.pop()
    os.close(open_folders.pop())


def _read_link(part: str, folder_fd: int, error: OSError, links: int) -> list[str]:
    """Return the components of the link that stopped the walk, last first; other errors are raised again."""
    target = None
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        with contextlib.suppress(OSError):
            target = os.readlink(part, dir_fd=folder_fd)
    if target is None:
        raise error
    if links > LINKS_MAX:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
    if target.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
    return _components(target)
