"""A program for a namespace of its own: a server on a small disk that is filled and freed again. Prints what it saw."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from chaos.server import prepare, servers
from chaos.stores import violations

SIZE = "8m"
PAY = {"model": "demo", "input": "Please pay the amount 7"}


def main(folder: Path) -> None:
    """Mount, serve, fill, ask, free, ask again."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], check=True)
    prepare(folder, 0.0)
    store = f"sqlite:///{disk}/treadle.db"
    seen: dict[str, object] = {}
    with servers(folder, store, 1) as [server]:
        seen["before"] = server.ask("POST", "/v1/responses", PAY)[0]
        fill(disk / "filler")
        effects = len((folder / "ledger").read_text().splitlines())
        seen["full"] = server.ask("POST", "/v1/responses", PAY)[0]
        seen["effects while full"] = len((folder / "ledger").read_text().splitlines()) - effects
        seen["alive"] = server.is_alive
        (disk / "filler").unlink()
        freed = time.monotonic()
        while (status := server.ask("POST", "/v1/responses", PAY)[0]) != 200 and time.monotonic() - freed < 30:
            time.sleep(0.05)
        seen["after"], seen["resumed_s"] = status, time.monotonic() - freed
    seen["violations"] = violations(store, folder)
    print(msgspec.json.encode(seen).decode(), flush=True)


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


if __name__ == "__main__":
    main(Path(sys.argv[1]))
