"""A Treadle that is killed and started again on the same journal, in processes of its own, before one upstream."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from treadle.providers.fakes.fake_server import ScriptServer, Source
from warm.start import Popen

BOUND_S = 30.0
PROGRAM = """
import sys
import time
import uvloop
from treadle.config import ServerSection, Settings, StoreSection, Upstream
from treadle.runtime import Parts, Runtime, SystemClock
from treadle.server.server_process import serve

class Later(SystemClock):
    # Each life begins a while later, so that the lease of the one before has ended and its time has not.
    def now(self):
        return time.time() + 60.0 * int(sys.argv[3])

async def main():
    settings = Settings(
        store=StoreSection(url=sys.argv[1]),
        server=ServerSection(port=0, keep_alive_s=0.2),
        upstream=(Upstream(name="script", base_url=sys.argv[2], models=("*",)),),
        default_model="script",
    )
    async with Runtime(settings, parts=Parts(env={}, clock=Later())) as runtime:
        await serve(runtime, lambda address: print(address.url, flush=True), 0.0)

uvloop.run(main())
"""


class Upstream:
    """A scripted upstream in a thread; `release` lets a held answer go on."""

    def __init__(self, source: Source, chunk_bytes: int | None = None) -> None:
        self.server = ScriptServer(source, chunk_bytes=chunk_bytes)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="upstream")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.__aenter__(), self._loop).result(BOUND_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.server.__aexit__(None, None, None), self._loop).result(BOUND_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_S)
        self._loop.close()

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self.server.release.set)


class Life:
    """One process of Treadle."""

    def __init__(self, process: "subprocess.Popen[str]", origin: str) -> None:
        self.process = process
        self.origin = origin

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()
        self.process.wait(BOUND_S)


@contextmanager
def life(folder: Path, upstream: Upstream, number: int, program: str = PROGRAM) -> Iterator[Life]:
    """Start Treadle on the folder's journal for the `number`-th time; `program` is what is run."""
    store = f"sqlite:///{folder}/treadle.db"
    process = Popen(
        [sys.executable, "-c", program, store, upstream.server.url, str(number)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stdout is not None
    try:
        yield Life(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()
