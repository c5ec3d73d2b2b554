"""A database that takes 200 ms for every answer: words still flow, memory stays, and everything ends."""

import statistics
import tempfile
import threading
import time
from pathlib import Path

from chaos.server import Server, prepare, servers
from chaos.slow import DELAY_S, slow_proxy
from chaos.stores import violations
from postgres import postgres_server

STREAMS = 40
MEMORY_MIB_MAX = 64
WORDS = "Tell me " + " ".join(f"word{n}" for n in range(60))


class Reader(threading.Thread):
    """Reads one stream and notes when each piece of text came."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self.at: list[float] = []
        self.status = ""

    def run(self) -> None:
        for event in self._server.stream("POST", "/v1/responses", {"model": "demo", "input": WORDS, "stream": True}):
            if event["type"] == "response.output_text.delta":
                self.at.append(time.monotonic())
            elif event["type"].startswith("response.") and "response" in event:
                self.status = event["response"]["status"]

    @property
    def gap_s(self) -> float:
        """Return how long the next piece took, most of the time."""
        return statistics.median(b - a for a, b in zip(self.at, self.at[1:], strict=False))


def memory_mib(server: Server) -> float:
    """Return what the process has in memory."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def test_words_flow_while_every_commit_takes_200_ms(tmp_path: Path) -> None:
    """Forty streams at once: the next word comes as soon as without, and memory grows by less than 64 MiB."""
    prepare(tmp_path, 0.0)
    database = postgres_server()
    schema = database.new_schema()
    with (
        tempfile.TemporaryDirectory(prefix="tps") as short,
        slow_proxy(database.socket_folder, Path(short) / "p") as proxy,
        servers(tmp_path, database.url(schema, folder=Path(short) / "p"), 1) as [server],
    ):
        quick = Reader(server)
        quick.run()
        before = memory_mib(server)
        proxy.delay_s = DELAY_S
        readers = [Reader(server) for _ in range(STREAMS)]
        for reader in readers:
            reader.start()
        most = before
        while any(reader.is_alive() for reader in readers):
            most = max(most, memory_mib(server))
            time.sleep(0.1)
        proxy.delay_s = 0.0
        alone = Reader(server)
        alone.run()
    assert {reader.status for reader in readers} == {"completed"}
    assert min(len(reader.at) for reader in readers) > 10
    gap_s = statistics.median(reader.gap_s for reader in readers)
    print(f"gap {quick.gap_s * 1000:.0f} ms alone, {gap_s * 1000:.0f} ms of {STREAMS}; +{most - before:.1f} MiB")
    assert gap_s < DELAY_S, "a word waited for a commit"
    assert most - before < MEMORY_MIB_MAX
    assert violations(database.url(schema), tmp_path) == []
