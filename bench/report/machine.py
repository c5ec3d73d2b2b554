"""Says what was measured on, without naming the machine: cores, memory, kernel, Python, versions, the day."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

OWN = ("treadle", "uvicorn", "uvloop", "httptools", "msgspec", "apsw")


def describe() -> str:
    """Return one line about the machine and the interpreter."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    release = ".".join(platform.release().split("-")[0].split(".")[:2])
    python = f"{platform.python_implementation()} {platform.python_version()}"
    words = [f"{cores} cores", *_memory(), f"{platform.system()} {release} {platform.machine()}", python]
    return f"{', '.join(words)}; {today()}; load average before the start {load:.1f}"


def today() -> str:
    """Return the day, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def versions() -> str:
    """Return the versions of what Treadle stands on."""
    found = []
    for name in OWN:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _memory() -> list[str]:
    try:
        total_kb = int(Path("/proc/meminfo").read_text().split()[1])
    except (OSError, ValueError):
        return []
    return [f"{total_kb / 2**20:.0f} GB"]
