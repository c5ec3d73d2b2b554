"""The descendants of a process: how many, how large, and their end. Standard library only."""

import contextlib
import os
import signal
import subprocess
import time
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PPID, _GROUP, _THREADS, _RSS = 1, 2, 17, 21
"""Where these stand in /proc/PID/stat, counted behind the name."""
KILL_S = 30.0
PAUSE_S = 0.002


class ProcessInfo(NamedTuple):
    """One process as it was a moment ago."""

    pid: int
    parent: int
    group: int
    memory_bytes: int
    threads: int


def every() -> list[ProcessInfo]:
    """Return all processes that can be seen."""
    if not os.path.isdir("/proc/self"):
        return _listed()
    found: list[ProcessInfo] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            # It may have ended since it was listed.
            with contextlib.suppress(OSError, ValueError, IndexError):
                found.append(_read(int(name)))
    return found


def below(top: int) -> list[ProcessInfo]:
    """Return the descendants of a process."""
    children: dict[int, list[ProcessInfo]] = {}
    for each in every():
        children.setdefault(each.parent, []).append(each)
    found: list[ProcessInfo] = []
    pending = [top]
    while pending:
        under = children.get(pending.pop(), [])
        found += under
        pending += [each.pid for each in under]
    return found


def threads_of_user() -> int:
    """Return how many threads the user of this process has; their number is what the kernel's limit counts."""
    count, own = 0, os.getuid()
    for each in every():
        with contextlib.suppress(OSError):
            count += each.threads if os.stat(f"/proc/{each.pid}").st_uid == own else 0
    return count


def signal_tree(top: int, number: int, spared: frozenset[int] = frozenset()) -> int:
    """Send a signal to every descendant and return how many there were."""
    pids = [each.pid for each in below(top) if each.pid not in spared]
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
    return len(pids)


def kill_below(top: int) -> int:
    """Kill every descendant of this process, which must be their reaper, and return how many there were.

    Groups are killed as wholes: the kernel lets no fork slip through that, however fast a group grows. What leaves its
    group with every fork can only be outrun, which the limits on its number are for.
    """
    seen: set[int] = set()
    own = os.getpgid(0)
    until = time.monotonic() + KILL_S
    while reap() is not None and time.monotonic() < until:
        found = below(top)
        for group in {each.group for each in found} - {own}:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for each in found:
            with contextlib.suppress(OSError):
                os.kill(each.pid, signal.SIGKILL)
        seen.update(each.pid for each in found)
        time.sleep(PAUSE_S)
    return len(seen)


def reap() -> list[tuple[int, int]] | None:
    """Take the ends of all children that have ended, as pid and exit code; None when there is no child at all."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended or None
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended.append((pid, code if code >= 0 else 128 - code))


def _read(pid: int) -> ProcessInfo:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    memory = int(fields[_RSS]) * _PAGE_BYTES
    return ProcessInfo(
        pid=pid,
        parent=int(fields[_PPID]),
        group=int(fields[_GROUP]),
        memory_bytes=memory,
        threads=int(fields[_THREADS]),
    )


def _listed() -> list[ProcessInfo]:
    """Ask `ps` where there is no /proc."""
    command = ["/bin/ps", "-axo", "pid=,ppid=,pgid=,rss="]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [
        ProcessInfo(pid=int(row[0]), parent=int(row[1]), group=int(row[2]), memory_bytes=int(row[3]) * 1024, threads=1)
        for row in rows
        if len(row) == 4
    ]


def is_alive(pid: int) -> bool:
    """Return whether there is such a process, also one of another user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
