"""A program for a namespace of its own: clients whose server's disk is filled, and freed. Prints how they ended."""

import asyncio
import subprocess
import sys
from pathlib import Path

from chaos.test_resume import outlive
from chaos.unready import SIZES
from gateway.outages import DISKS


def main(store: str, pace_s: float, differs: int | None, folder: Path) -> None:
    """Mount a small disk, and let clients read from a server whose store is on it."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZES[store]}", "tmpfs", str(disk)], check=True)
    asyncio.run(outlive(f"{store}, a full disk,", DISKS[store], pace_s, differs, disk))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) or None, Path(sys.argv[4]))
