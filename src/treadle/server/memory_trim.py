"""Gives memory back to the system after a burst: the C library keeps what was freed, and would keep it for ever."""

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
SLACK_BYTES = 8 * 1024 * 1024
"""How far the process may grow before it is worth while: a trim looks at the whole heap, which takes milliseconds."""

QUIET_BYTES = 1024 * 1024
"""A process that changed less since the last look has little to do."""

LARGE_BYTES = 1024 * 1024
"""What is as large has pages of its own, which go back when it is freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4_096


def resident_bytes() -> int:
    """Return how much memory the process holds."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES


def find_trim() -> Callable[[], object] | None:
    """Return the C library's way to give memory back, and keep it from holding on to more; None where it has none."""
    if not _STATM.exists():
        return None
    try:
        library = ctypes.CDLL(None)
        malloc_trim, mallopt = library.malloc_trim, library.mallopt
    except (OSError, AttributeError):
        return None  # not glibc
    # Else the first large answer that is freed raises both, up to 64 MB: what is free at the end of a thread's heap is
    # given back only above them, for a trim passes it over.
    mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, LARGE_BYTES)
    return lambda: malloc_trim(0)


class MemoryTrimmer:
    """Trims the heap while the process holds more than it held at its smallest: what is in use at one look may be free
    at the next, and the C library tells nobody."""

    def __init__(
        self,
        trim: Callable[[], object],
        resident: Callable[[], int] = resident_bytes,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._trim = trim
        self._resident = resident
        self._collect = collect
        self._least_bytes = resident()
        self._left_bytes = 0
        self._has_collected = False

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.trim_if_grown()

    async def trim_if_grown(self) -> bool:
        """Trim if the process has grown. Not on the event loop: a large heap takes some milliseconds."""
        held = self._resident()
        self._least_bytes = min(self._least_bytes, held)
        is_quiet = abs(held - self._left_bytes) <= QUIET_BYTES
        if not is_quiet:
            self._has_collected = False
        if held <= self._least_bytes + SLACK_BYTES:
            return False
        if is_quiet and not self._has_collected:
            # A server hardly ever collects cycles by itself, for nothing runs meanwhile: once, now that little does.
            self._has_collected = True
            self._collect()
        await asyncio.to_thread(self._trim)
        left = self._left_bytes = self._resident()
        log.debug("memory given back", extra={"freed_bytes": held - left, "held_bytes": left})
        self._least_bytes = min(self._least_bytes, left)
        return True
