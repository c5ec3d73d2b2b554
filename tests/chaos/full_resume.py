"""A program for a namespace of its own: clients whose server's disk is filled, and freed. Prints how they ended."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from chaos.test_resume import outlive
from chaos.unready import SIZES
from gateway.outages import DISKS
from places import SHARED, fits_sockets


def main(store: str, pace_s: float, differs: int | None, folder: Path) -> None:
    """Mount a small disk, and let clients read from a server whose store is on it."""
    disk = folder / "disk"
    disk.mkdir()
    if not fits_sockets(disk / "tpg12345678"):
        # The database would be put elsewhere, and its disk would never be full.
        disk = Path(tempfile.mkdtemp(prefix="disk", dir=SHARED[0]))
        disk.chmod(0o755)
    engine, _, _ = store.partition("-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZES[engine]}", "tmpfs", str(disk)], check=True)
    if engine == "postgresql":
        tempfile.tempdir = str(disk)
    asyncio.run(outlive(f"{store}, a full disk,", DISKS[store], pace_s, differs, disk))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) or None, Path(sys.argv[4]))
