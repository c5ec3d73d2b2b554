"""Gives memory back to the system after a burst: the C library keeps what was freed, and would keep it for ever."""

import asyncio
import ctypes
import logging
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
SLACK_BYTES = 64 * 1024 * 1024
"""How far the process may grow before it is worth while: a trim looks at the whole heap."""

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4_096


def resident_bytes() -> int:
    """Return how much memory the process holds."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES


def find_trim() -> Callable[[], object] | None:
    """Return the C library's way to give memory back; None where it has none."""
    if not _STATM.exists():
        return None
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None  # not glibc
    return lambda: malloc_trim(0)


class MemoryTrimmer:
    """Trims the heap whenever the process has grown well beyond what it held after the last trim at its smallest."""

    def __init__(self, trim: Callable[[], object], resident: Callable[[], int] = resident_bytes) -> None:
        self._trim = trim
        self._resident = resident
        self._least_bytes = resident()

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.look()

    async def look(self) -> bool:
        """Trim if the process has grown. Not on the event loop: a large heap takes some milliseconds."""
        held = self._resident()
        self._least_bytes = min(self._least_bytes, held)
        if held <= self._least_bytes + SLACK_BYTES:
            return False
        await asyncio.to_thread(self._trim)
        left = self._resident()
        log.debug("memory given back", extra={"freed_bytes": held - left, "held_bytes": left})
        self._least_bytes = min(self._least_bytes, left)
        return True
