"""The database itself dies, again and again, under load."""

import threading
import time
from pathlib import Path

import msgspec

from chaos.server import Server, prepare, servers
from chaos.stores import rows, violations
from postgres import PostgresServer
from treadle.core.events import ENDED

KILLS = 20
RECOVERY_S = 5.0
ANSWER_S = 18.0
"""A run that goes on waits 10 s for its database, a new one is refused within 5 s; and some for a busy machine."""
HEALED_S = 60.0
CLIENTS = 4


class Client(threading.Thread):
    """Asks again and again; notes what was acknowledged and how long an answer took."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__()
        self._server = server
        self._number = number
        self.stop = threading.Event()
        self.acknowledged: set[str] = set()
        self.completed: set[str] = set()
        self.statuses: list[int] = []
        self.slowest_s = 0.0

    def run(self) -> None:
        while not self.stop.is_set():
            begun = time.monotonic()
            body = {"model": "demo", "input": f"Please pay the amount {self._number}"}
            status, answer = self._server.ask("POST", "/v1/responses", body)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
            self.statuses.append(status)
            if status == 200:
                run = msgspec.json.decode(answer)
                self.acknowledged.add(run["id"])
                if run["status"] == "completed":
                    self.completed.add(run["id"])


def heal(server: Server) -> float:
    """Return how long it takes until the server is ready again."""
    begun = time.monotonic()
    while server.ask("GET", "/readyz")[0] != 200:
        assert time.monotonic() - begun < HEALED_S
        time.sleep(0.02)
    return time.monotonic() - begun


def test_a_dying_database_loses_nothing_it_acknowledged(tmp_path: Path):
    """kill -9 of PostgreSQL twenty times: answers are errors or true, nothing acknowledged is lost, all runs end."""
    prepare(tmp_path, 0.0)
    database = PostgresServer()
    database.start()
    try:
        store = database.url("chaos")
        with servers(tmp_path, store, 1) as [server]:
            clients = [Client(server, number) for number in range(1, CLIENTS + 1)]
            for client in clients:
                client.start()
            healed: list[float] = []
            for _ in range(KILLS):
                time.sleep(1.0)
                database.kill()
                time.sleep(0.5)
                database.start()
                healed.append(heal(server))
            time.sleep(2.0)
            for client in clients:
                client.stop.set()
            for client in clients:
                client.join(HEALED_S)
            deadline = time.monotonic() + HEALED_S
            while any(row.status not in ENDED for row in rows(store)) and time.monotonic() < deadline:
                time.sleep(0.5)
            assert server.is_alive
        kept = {row.response_id: row.status for row in rows(store)}
        assert {run_id for client in clients for run_id in client.acknowledged} <= kept.keys()
        assert {kept[run_id] for client in clients for run_id in client.completed} == {"completed"}
        assert {status for client in clients for status in client.statuses} <= {200, 500, 502, 503}
        assert max(client.slowest_s for client in clients) < ANSWER_S
        print(f"ready again after {max(healed):.2f} s at most; {len(kept)} runs")
        assert max(healed) < RECOVERY_S
        assert violations(store, tmp_path) == []
    finally:
        database.remove()
