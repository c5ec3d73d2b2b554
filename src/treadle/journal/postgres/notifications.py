"""Notifies other processes that a run was written to, and wakes the waiters of this one.

Everything uses one connection: it listens, and at most every 10 ms it notifies of the runs written since, never inside
the transaction that wrote, because PostgreSQL commits such transactions one at a time. A listener announces itself
at the start and every few seconds, so that a process without others sends no notifications. A notification is only a
wake-up; a waiter reads again after 250 ms anyway, so nothing depends on the connection, which is opened again when it
is lost.
"""

import asyncio
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import asyncpg

from treadle.journal.postgres.connection import UNREACHABLE, Connection, connect
from treadle.journal.store_url import PostgresAddress

CHANNEL = "treadle"
RING_S = 0.010
POLL_S = 0.250
HEARTBEAT_S = 5.0
OTHERS_S = 3 * HEARTBEAT_S
"""For how long a listener that announced itself is taken to listen."""
RETRY_S = 0.5
ANSWER_S = 2.0
NAMES_MAX = 800
"""How many runs one notification names: its text may have 8,000 bytes."""

_NOTIFY = "SELECT pg_notify($1, $2)"
_FAILURES = (*UNREACHABLE, ValueError, asyncpg.PostgresError)


class NotificationListener:
    """Belongs to the event loop in which it was opened."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._task: asyncio.Task[None] | None = None
        self._pending: set[str] = set()
        self._due = asyncio.Event()
        self._rung_at = 0.0
        self._pid = 0
        self._others_until = 0.0
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self.is_listening = asyncio.Event()
        self._listens = 0

    @property
    def reconnects(self) -> int:
        """Return how often it began to listen again."""
        return max(0, self._listens - 1)

    def open(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._keep_listening(), name="treadle-store-bell")

    async def close(self) -> None:
        """Wake everybody who waits, and stop."""
        task, self._task = self._task, None
        self._wake(list(self._waiting))
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def ring(self, run_id: str) -> None:
        """Publish that a run was written to: here at once, to listeners in other processes soon."""
        if self._waiting:
            self._wake([_name(run_id)])
        if self._task is not None and time.monotonic() < self._others_until:
            self._pending.add(run_id)
            self._due.set()

    async def wait(self, run_id: str, timeout_s: float) -> None:
        """Return when the run was written to, or when it is time to read again anyway."""
        if self._task is None:
            return
        name = _name(run_id)
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, set()).add(future)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(timeout_s, POLL_S)):
                    await future
        finally:
            waiting = self._waiting.get(name, set())
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(name, None)

    async def _keep_listening(self) -> None:
        while True:
            with suppress(*_FAILURES):
                await self._listen()
            self.is_listening.clear()
            await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        connection = await connect(self._address, is_durable=False)
        try:
            connection.add_termination_listener(self._hang_up)
            # Asked for: behind a pooler the driver knows another number than the one that notifications bear.
            self._pid = await connection.fetchval("SELECT pg_backend_pid()", timeout=ANSWER_S)
            self._others_until = time.monotonic() + OTHERS_S  # until they had the time to announce themselves
            await connection.execute(_NOTIFY, CHANNEL, "", timeout=ANSWER_S)
            await connection.add_listener(CHANNEL, self._hear)
            self._listens += 1
            self.is_listening.set()
            self._wake(list(self._waiting))
            while not connection.is_closed():
                await self._serve(connection)
        finally:
            connection.terminate()

    async def _serve(self, connection: Connection) -> None:
        """Notify of the runs written to, or announce this listener, which also shows whether the server is there."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._due.wait()
        except TimeoutError:
            await connection.execute(_NOTIFY, CHANNEL, "", timeout=ANSWER_S)
            return
        await asyncio.sleep(max(0.0, self._rung_at + RING_S - time.monotonic()))
        self._rung_at = time.monotonic()
        self._due.clear()
        while self._pending:
            names = [_name(self._pending.pop()) for _ in range(min(NAMES_MAX, len(self._pending)))]
            await connection.execute(_NOTIFY, CHANNEL, ",".join(names), timeout=ANSWER_S)

    def _hang_up(self, _connection: Any) -> None:
        self._due.set()

    def _hear(self, _connection: Any, pid: int, _channel: str, payload: object) -> None:
        if pid != self._pid:
            self._others_until = time.monotonic() + OTHERS_S
        self._wake(str(payload).split(","))

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            for future in self._waiting.get(name, ()):
                if not future.done():
                    future.set_result(None)


def _name(run_id: str) -> str:
    """Return a short name: two runs may share one, and a waiter for either is woken."""
    return f"{zlib.crc32(run_id.encode('utf-8', 'surrogatepass')):08x}"
