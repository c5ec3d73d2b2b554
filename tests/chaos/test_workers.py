"""Several workers on one port, killed and replaced under load."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import msgspec
import pytest
from mcp import Client

from chaos.server import Server, prepare, servers
from chaos.stores import KINDS, address, rows, violations
from treadle.core.events import ENDED

BOUND_S = 60.0
WORKERS = ("--workers", "3")


class Asker(threading.Thread):
    """Asks again and again; notes every answer, and what did not come to one."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__()
        self._server = server
        self._number = number
        self.stop = threading.Event()
        self.statuses: list[int] = []
        self.broken = 0

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                body = {"model": "demo", "input": f"Please pay the amount {self._number}"}
                status, answer = self._server.ask("POST", "/v1/responses", body)
            except OSError:
                self.broken += 1
            else:
                is_done = status == 200 and msgspec.json.decode(answer)["status"] == "completed"
                self.statuses.append(status if is_done or status != 200 else 0)


def load(server: Server, count: int = 4) -> list[Asker]:
    """Start clients."""
    clients = [Asker(server, number) for number in range(1, count + 1)]
    for client in clients:
        client.start()
    return clients


def stop(clients: list[Asker]) -> tuple[set[int], int, int]:
    """Stop clients and return what they were answered, how often, and how often they were not."""
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join(BOUND_S)
    statuses = [status for client in clients for status in client.statuses]
    return set(statuses), len(statuses), sum(client.broken for client in clients)


def until(server: Server, count: int) -> list[int]:
    """Wait until there are so many workers."""
    deadline = time.monotonic() + BOUND_S
    while len(found := server.workers()) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_replaced_under_load_and_nobody_notices(kind: str, tmp_path: Path) -> None:
    """SIGHUP twice: all processes are others afterwards, and every request was answered."""
    prepare(tmp_path, 0.0)
    store = address(kind, tmp_path)
    with servers(tmp_path, store, 1, *WORKERS) as [server]:
        old = until(server, 3)
        clients = load(server)
        for _ in range(2):
            os.kill(server.pid, signal.SIGHUP)
            deadline = time.monotonic() + BOUND_S
            while set(old) & set(server.workers()) or len(server.workers()) != 3:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            old = server.workers()
        statuses, count, broken = stop(clients)
        assert server.leave() == 0
    assert (statuses, broken) == ({200}, 0), count
    assert violations(store, tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_are_killed_at_random_lose_nothing(kind: str, tmp_path: Path) -> None:
    """SIGKILL of one worker a second under load: every run that was acknowledged ends, and no effect happens twice."""
    prepare(tmp_path, 0.0)
    store = address(kind, tmp_path)
    with servers(tmp_path, store, 1, *WORKERS) as [server]:
        until(server, 3)
        clients = load(server)
        for _ in range(10):
            time.sleep(1.0)
            if found := server.workers():
                os.kill(random.choice(found), signal.SIGKILL)
        statuses, count, broken = stop(clients)
        deadline = time.monotonic() + BOUND_S
        while any(row.status not in ENDED for row in rows(store)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert server.is_alive
        until(server, 3)
        assert server.leave() == 0
    assert {row.status for row in rows(store)} <= ENDED
    assert 200 in statuses, (count, broken)
    assert violations(store, tmp_path) == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_mcp_clients_of_both_eras_are_served_by_several_workers(mode: str, tmp_path: Path) -> None:
    """No worker keeps a session that the next request could miss."""
    prepare(tmp_path, 0.0)
    env = {"TREADLE_SERVER__MCP": "true"}
    with servers(tmp_path, address("sqlite", tmp_path), 1, *WORKERS, env=env) as [server]:
        until(server, 3)
        for number in range(6):
            async with Client(f"http://127.0.0.1:{server.port}/mcp", mode=mode) as client:
                done = await client.call_tool("upsert", {"amount": number})
                assert not done.is_error
