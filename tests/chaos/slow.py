"""A PostgreSQL that takes 200 ms for every answer: a proxy before its socket, in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
DELAY_S = 0.2


class SlowProxy:
    """Passes everything on, each answer `delay_s` later."""

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.delay_s = 0.0
        self._listening: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow-proxy")

    def open(self) -> None:
        """Begin to listen."""
        self._thread.start()
        listening = asyncio.start_unix_server(self._serve, str(self._folder / SOCKET))
        self._listening = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10.0)

    def close(self) -> None:
        """Cut everything."""

        async def cut() -> None:
            if self._listening is not None:
                self._listening.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # the aborted transports close their sockets

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(10.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(self._server / SOCKET))
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.wait(
                [
                    asyncio.create_task(self._pass(reader, back, is_slow=False)),
                    asyncio.create_task(self._pass(there, writer, is_slow=True)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        writer.transport.abort()
        back.transport.abort()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_slow: bool) -> None:
        while data := await source.read(1 << 20):
            if is_slow and self.delay_s:
                await asyncio.sleep(self.delay_s)
            sink.write(data)


@contextmanager
def slow_proxy(server: Path, folder: Path) -> Iterator[SlowProxy]:
    """Run a proxy before the socket in that folder."""
    folder.mkdir()
    proxy = SlowProxy(server, folder)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()
