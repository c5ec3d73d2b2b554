"""A whole Treadle on loopback, in a thread of its own: real HTTP on both sides, so that any client can be the judge."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from socket import socket
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn

from treadle.config import Settings, StoreSection, Upstream
from treadle.config.settings import UpstreamsSection
from treadle.http.server_protocol import bounded
from treadle.providers.fakes.fake_server import ScriptServer, Source
from treadle.runtime import Runtime
from treadle.server.app import App
from treadle.tools import Tool

T = TypeVar("T")
START_S = 20
GRACE_LOOKS = 1_000
LOOK_S = 0.002


HEAD_S = 60.0
"""How long the head of a request may take here."""


class _Told(uvicorn.Server):
    """Stops when it is told and not some ticks later, as uvicorn does: there are hundreds of gateways in the tests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told = asyncio.Event()

    async def main_loop(self) -> None:
        await self.told.wait()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(GRACE_LOOKS):
            if not self.server_state.connections and not self.server_state.tasks:
                break
            await asyncio.sleep(LOOK_S)
        for task in self.server_state.tasks:
            task.cancel()


class Gateway:
    """Treadle in front of a scripted upstream; `url` is the API's base, `providers` what it talked to."""

    def __init__(
        self,
        source: Source,
        folder: Path,
        *,
        tools: Iterable[Tool] = (),
        chunk_bytes: int | None = None,
        protocol: str = "chat",
        **sections: Any,
    ) -> None:
        self._protocol = protocol
        self._source = source
        self._folder = folder
        self._tools = tuple(tools)
        self.chunk_bytes = chunk_bytes
        self._sections = sections
        self._ready = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="gateway")
        self._failure: BaseException | None = None
        self.origin = ""
        self.upstream: ScriptServer
        self.runtime: Runtime
        self.loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_S) or self._failure is not None:
            raise RuntimeError("the gateway did not start") from self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self._stop)
        self._thread.join(START_S)
        assert not self._thread.is_alive()

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the gateway's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(START_S)

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            async with ScriptServer(self._source, chunk_bytes=self.chunk_bytes) as upstream:
                self.upstream = upstream
                async with Runtime(self._settings(upstream.url), tools=self._tools) as runtime:
                    self.runtime = runtime
                    await self._serve(App(runtime))
        except BaseException as error:
            self._failure = error
            self._ready.set()
            raise

    def _settings(self, url: str) -> Settings:
        store = StoreSection(url=f"sqlite:///{self._folder / 'treadle.db'}")
        base_url = url.removesuffix("/v1") + "/v1beta" if self._protocol == "gemini" else url
        upstream = Upstream(name="script", base_url=base_url, models=("*",), protocol=self._protocol)
        once = UpstreamsSection(retries=0)  # a script tells each call once
        chosen = {"store": store, "upstream": (upstream,), "upstreams": once, "default_model": "script"}
        return Settings(**(chosen | self._sections))

    async def _serve(self, app: App) -> None:
        config = uvicorn.Config(app, port=0, http=bounded(HEAD_S), lifespan="off", log_config=None, ws="none")
        server = _Told(config)
        self._stop = server.told.set
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
            if serving.done():
                break
        self.origin = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        self._ready.set()
        await serving
