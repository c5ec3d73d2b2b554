"""A proxy before PostgreSQL's socket that loses what the tests want to be lost."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

from postgres_place import new_folder

SOCKET = ".s.PGSQL.5432"
READY = b"Z\x00\x00\x00\x05"
"""How the server says that a statement is over, and committed."""

Loss = Literal["request", "reply"]


class Proxy:
    """Passes everything on until it is told to lose something, or to stand still."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.folder = new_folder(None, on_disk=True)
        self._lost: tuple[Loss, bytes] | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.losses = 0
        self.has_lost = asyncio.Event()

    def lose(self, what: Loss, needle: bytes) -> None:
        """Lose the next request that holds these bytes, or the reply to it, with its connection."""
        self._lost = (what, needle)

    def stand_still(self) -> None:
        """Pass nothing on any more, without closing anything."""
        self._flows.clear()

    def go_on(self) -> None:
        """Pass on what waits, and all that comes."""
        self._flows.set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(str(self._server / SOCKET))
        is_silent = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, server_writer, is_silent))
                group.create_task(self._back(server_reader, writer, is_silent))
        except* (ConnectionError, _Cut):
            pass
        finally:
            server_writer.transport.abort()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, silent: asyncio.Event) -> None:
        while data := await source.read(1 << 20):
            await self._flows.wait()
            if self._lost is not None and self._lost[1] in data:
                what, self._lost = self._lost[0], None
                self.losses += 1
                self.has_lost.set()
                if what == "request":
                    raise _Cut
                silent.set()
            sink.write(data)
        raise _Cut

    async def _back(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, silent: asyncio.Event) -> None:
        while data := await source.read(1 << 20):
            await self._flows.wait()
            if silent.is_set():
                if READY in data[-6:]:
                    raise _Cut
                continue
            sink.write(data)
        raise _Cut

    async def close(self) -> None:
        """Cut everything."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # the aborted transports close their sockets
        shutil.rmtree(self.folder, ignore_errors=True)


class _Cut(Exception):
    """This connection is over."""


@asynccontextmanager
async def proxy_before(server: Path) -> AsyncIterator[Proxy]:
    """Run a proxy before the socket in that folder."""
    proxy = Proxy(server)
    listening = await asyncio.start_unix_server(proxy, str(proxy.folder / SOCKET))
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(listening.wait_closed(), 5.0)
