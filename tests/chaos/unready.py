"""A program for a namespace of its own: a server whose store is on a small disk that is filled and freed again. Prints
what its probes said meanwhile."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from chaos.full import PAY, fill
from chaos.server import Server, prepare, servers
from places import SHARED, fits_sockets

SIZES = {"sqlite": "16m", "postgresql": "200m"}
BOUND_S = 60.0


def main(kind: str, folder: Path) -> None:
    """Mount, serve, fill, ask, free, ask again."""
    disk = folder / "disk"
    disk.mkdir()
    if not fits_sockets(disk / "tpg12345678"):
        # The database would be put elsewhere, and its disk would never be full.
        disk = Path(tempfile.mkdtemp(prefix="disk", dir=SHARED[0]))
        disk.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZES[kind]}", "tmpfs", str(disk)], check=True)
    prepare(folder, 0.0)
    if kind == "sqlite":
        _watch(folder, disk, f"sqlite:///{disk}/treadle.db")
        return
    from postgres import PostgresServer

    tempfile.tempdir = str(disk)
    database = PostgresServer(on_disk=True)
    try:
        database.start()
        assert any(disk.iterdir()), "the database is not on the small disk"
        _watch(folder, disk, database.url())
    finally:
        database.remove()


def _watch(folder: Path, disk: Path, store: str) -> None:
    seen: dict[str, object] = {}
    with servers(folder, store, 1) as [server]:
        seen["before"] = server.ask("GET", "/readyz")[0], server.ask("POST", "/v1/responses", PAY)[0]
        fill(disk / "filler")
        seen["unready_s"], seen["said"] = _until(server, 503)
        seen["alive"] = server.ask("GET", "/healthz")[0]
        (disk / "filler").unlink()
        seen["ready_s"], _ = _until(server, 200)
        seen["after"] = server.ask("POST", "/v1/responses", PAY)[0]
    print(msgspec.json.encode(seen).decode(), flush=True)


def _until(server: Server, wanted: int) -> tuple[float, str]:
    """Wait until it is ready, or is not; return how long that took and what it said then."""
    began = time.monotonic()
    while (answer := server.ask("GET", "/readyz"))[0] != wanted:
        assert time.monotonic() - began < BOUND_S, answer
        time.sleep(0.05)
    return time.monotonic() - began, answer[1].decode()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
