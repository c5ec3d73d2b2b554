"""Returns freed memory to the system after a burst, because the C library would hold it indefinitely."""

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
SLACK_BYTES = 8 * 1024 * 1024
"""How far the process may grow before a trim is worth its cost: it walks the whole heap, which takes milliseconds."""

QUIET_BYTES = 1024 * 1024
"""A process whose size changed less since the last check is nearly idle."""

LARGE_BYTES = 1024 * 1024
"""Allocations of this size get their own pages, which are returned as soon as they are freed."""

ARENAS_MAX = 2
"""Each thread would get an arena of its own, up to eight for each core, and each keeps what its peak left in pieces."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4_096


def resident_bytes() -> int:
    """Return the resident memory of the process."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES


def find_trim() -> Callable[[], object] | None:
    """Return the C library's trim function, and limit what it holds on to; None where it has none."""
    if not _STATM.exists():
        return None
    try:
        library = ctypes.CDLL(None)
        malloc_trim, mallopt = library.malloc_trim, library.mallopt
    except (OSError, AttributeError):
        return None  # not glibc
    # Otherwise glibc raises both thresholds up to 64 MB when the first large block is freed, and returns the free end
    # of a thread's heap only above them: malloc_trim does not cover it.
    mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, LARGE_BYTES)
    mallopt(_M_ARENA_MAX, ARENAS_MAX)
    return lambda: malloc_trim(0)


class MemoryTrimmer:
    """Trims the heap while the process holds more memory than at its smallest: the C library does not report what
    is free, so it tries again after each interval."""

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
        """Check at each interval until cancelled."""
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
            # An idle server allocates too little to trigger a garbage collection, so run one now.
            self._has_collected = True
            self._collect()
        await asyncio.to_thread(self._trim)
        left = self._left_bytes = self._resident()
        log.debug("memory given back", extra={"freed_bytes": held - left, "held_bytes": left})
        self._least_bytes = min(self._least_bytes, left)
        return True
