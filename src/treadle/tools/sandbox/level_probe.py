"""Finds the best level by trying: each runs a child that attempts what the level forbids. Standard library only.

It runs in a process of its own and prints what it found as JSON.
"""

import dataclasses
import json
import os
import select
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable

from treadle.tools.sandbox import confinement as confine
from treadle.tools.sandbox import landlock, seccomp
from treadle.tools.sandbox import process_tree as processes
from treadle.tools.sandbox import visible_paths as places
from treadle.tools.sandbox.helper_messages import CommandOrder

LEVELS = (3, 2, 1)
PROBE_S = 5.0
SHELL = "/bin/sh"
PROCESSES_SEEN_MAX = 8


def main() -> None:
    """Print the best level, Landlock's version, and why the levels above it are not to be had."""
    json.dump(probe(), sys.stdout)


def probe() -> dict[str, object]:
    """Try the levels, best first."""
    abi = landlock.version()
    missing: dict[str, str] = {}
    for level in LEVELS:
        reason = _lacks(level, abi) or _try(level, abi)
        if not reason:
            return {"level": level, "abi": abi, "missing": missing}
        missing[f"L{level}"] = reason
    return {"level": 0, "abi": abi, "missing": missing}


def _lacks(level: int, abi: int) -> str:
    if abi == 0:
        return "the kernel has no Landlock"
    if not seccomp.is_known():
        return f"there is no seccomp filter for {os.uname().machine}"
    if level > 1 and abi < landlock.ABI_FULL:
        return f"Landlock is of version {abi}, {landlock.ABI_FULL} is needed"
    return ""


def _try(level: int, abi: int) -> str:
    """Return why a level does not hold here, or nothing."""
    place = os.path.realpath(tempfile.mkdtemp(prefix="treadle-probe-"))
    try:
        inside, secret = f"{place}/inside", f"{place}/secret"
        os.mkdir(inside)
        with open(secret, "w", encoding="ascii") as file:
            file.write("secret")
        order = CommandOrder(
            argv=[SHELL, "-c", ":"],
            cwd=inside,
            env={"PATH": places.PATH_DEFAULT},
            level=level,
            abi=abi,
            read=places.readable(places.PATH_DEFAULT, "", network=False),
            write=[inside],
        )
        reading = dataclasses.replace(order, read=[*order.read, inside], write=[], read_only=True)
        return _outcome(order, lambda: _attempt(order, secret)) or _outcome(
            reading, lambda: _attempt_reading(reading, f"{inside}/made")
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _outcome(order: CommandOrder, attempt: Callable[[], None]) -> str:
    pid, error_in = confine.start(order, attempt)
    ready, _, _ = select.select([error_in], [], [], PROBE_S)
    message = os.read(error_in, confine.MESSAGE_BYTES_MAX).decode("utf-8", "replace") if ready else "it took too long"
    os.close(error_in)
    if not ready:
        processes.kill_below(os.getpid())
        return message
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return message or ("" if code == 0 else f"a shell ended with {code}")


def _attempt(order: CommandOrder, secret: str) -> None:
    """Attempt what is forbidden; whatever succeeds is reported. Then become a shell, which must work."""
    if _can(lambda: open(secret, encoding="ascii").close()):
        raise OSError("a file outside could be read")
    if _can(lambda: open(f"{secret}.new", "w", encoding="ascii").close()):
        raise OSError("a file outside could be made")
    if _can(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()):
        raise OSError("a socket could be opened")
    if order.level > 2 and (_can(lambda: os.chmod(secret, 0o600)) or _seen() > PROCESSES_SEEN_MAX):
        raise OSError("the namespaces are not its own")
    with open(f"{order.cwd}/made", "w", encoding="ascii") as file:
        file.write("made")
    os.execve(order.argv[0], order.argv, order.env)


def _attempt_reading(order: CommandOrder, path: str) -> None:
    """Attempt to change a file in the folder as a command that may change nothing; reading it must work."""
    os.stat(path)
    fd = os.open(path, os.O_RDONLY)
    attempts: dict[str, Callable[[], object]] = {
        "written": lambda: os.open(path, os.O_WRONLY),
        "emptied": lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
        "cut off": lambda: os.truncate(path, 0),
        "removed": lambda: os.unlink(path),
        "joined by a new one": lambda: os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT),
        "given another mode": lambda: os.fchmod(fd, 0o600),
        "given another time": lambda: os.utime(path),
        "given an attribute": lambda: os.setxattr(fd, "user.treadle", b""),
    }
    for what, attempt in attempts.items():
        if _can(attempt):
            raise OSError(f"a file that is only to be read could be {what}")
    if _can(lambda: socket.socket(socket.AF_UNIX).close()):
        raise OSError("a socket could be opened where nothing but reading is allowed")
    os.execve(order.argv[0], order.argv, order.env)


def _seen() -> int:
    return len([name for name in os.listdir("/proc") if name.isdigit()])


def _can(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True
