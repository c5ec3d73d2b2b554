"""The server process: binds the port, serves until a signal comes, and shuts down gracefully.

On SIGTERM or Ctrl-C it accepts no new runs and reports that at /readyz, waits for active runs, cancels the rest so that
every stream gets its terminal event, and only then closes its connections. A second signal does not wait.
"""

import asyncio
import errno
import logging
import re
import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn

from treadle.config import ServerSection
from treadle.core.errors import ConfigError
from treadle.http.server_protocol import bounded
from treadle.runtime import Runtime
from treadle.server.app import App
from treadle.server.auth.installation_secret import secret_for
from treadle.server.auth.signed_tickets import Tickets
from treadle.server.memory_trim import MemoryTrimmer, find_trim
from treadle.server.request_guard import is_loopback
from treadle.server.server_state import GRACE_S, WriteScenario
from treadle.server.workers.control_channel import ControlChannel, WorkerAssignment
from treadle.server.workers.shared_metrics import SharedMetrics

CLOSE_TIMEOUT_S = 5
_LISTEN_HINTS = {
    errno.EADDRINUSE: "Is Treadle running already? --port 0 picks a free port.",
    errno.EACCES: "Ports below 1024 need rights: take one above, such as --port 8700.",
    errno.EADDRNOTAVAIL: "No network of this machine has that address: --host 127.0.0.1 always works.",
    socket.EAI_NONAME: "That name has no address; check server.host.",
}
IDLE_CONNECTION_S = 75
"""Longer than clients keep a connection in their pools: if the server closed first, a request could be lost."""

BACKLOG = 2_048
SEND_BUFFER_BYTES = 131_072
"""How much of a response the system buffers for a slow client: its default would be megabytes for each."""
UVICORN = ((0, 53), (0, 55))
"""The versions of uvicorn that the edge works with, the second no more: it builds on private classes, and on others it
answers 400 to everything or forgets to close connections of HTTP/1.0. pyproject.toml has the same bounds."""
LINGER_S = 1.0
"""How long a worker that shuts down still accepts requests on its open connections."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens; `login` is the path of a one-time link."""

    host: str
    port: int
    login: str = ""

    @property
    def url(self) -> str:
        """Return the address for a browser on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http://{host}:{self.port}"


Announce = Callable[[Address], None]


async def serve(
    runtime: Runtime,
    announce: Announce | None = None,
    grace_s: float = GRACE_S,
    write_scenario: WriteScenario | None = None,
    post: WorkerAssignment | None = None,
) -> None:
    """Serve an open runtime until a signal comes; `announce` is called once requests are answered.

    With `write_scenario` runs can be exported as scenarios; with `post` this is one of several workers on a port.

    Raises: ConfigError, when the address cannot or must not be listened on, or uvicorn is of another version.
    """
    check_uvicorn(uvicorn.__version__)
    listener = bind(runtime.settings.server) if post is None else post.listening()
    app = App(runtime)
    settings = runtime.settings.server
    app.service.write_scenario = write_scenario
    config = uvicorn.Config(
        app,
        http=bounded(
            settings.receive_timeout_s,
            settings.send_timeout_s,
            runtime.metrics.reader_dropped,
            settings.connections_max or _connections_max(),
        ),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whom to believe is in the settings: rates.proxies
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_CONNECTION_S,
        timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
    )
    # uvicorn warns of every WebSocket probe that is answered with 426; Treadle logs what matters itself.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with listener, runtime.own_ports.listening(listener.getsockname()[1]):
        async with _trimming():
            if post is None:
                await _Server(config, app, announce, grace_s).serve(sockets=[listener])
                return
            async with _joined_workers(runtime, app, post) as line:
                await _Worker(config, app, announce, grace_s, line).serve(sockets=[listener])


@asynccontextmanager
async def _trimming() -> AsyncGenerator[None, None]:
    """Return memory to the system after bursts, where the C library supports it."""
    trim = find_trim()
    task = None if trim is None else asyncio.create_task(MemoryTrimmer(trim).run(), name="treadle-memory")
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


@asynccontextmanager
async def _joined_workers(runtime: Runtime, app: App, post: WorkerAssignment) -> AsyncGenerator[ControlChannel, None]:
    """Join the other workers: share metrics and logins, and recover the runs of dead workers."""
    if post.secret:
        app.service.gate.tickets = Tickets(secret_for("login", post.secret.encode()), 0.0)
    numbers = app.service.numbers = SharedMetrics(runtime.metrics.registry, Path(post.numbers), post.owner)
    line = ControlChannel(post, runtime.runs.recover_owner)
    line.open()
    keeping = asyncio.create_task(numbers.write_periodically(), name="treadle-numbers")
    try:
        for owner in post.dead:
            await runtime.runs.recover_owner(owner)
        yield line
    finally:
        keeping.cancel()
        numbers.write()
        if line.is_orphaned:
            shutil.rmtree(post.numbers, ignore_errors=True)  # the supervisor is gone and cannot do it
        await line.close()


def check_uvicorn(version: str) -> None:
    """Refuse a version of uvicorn that the edge was not made for.

    Raises: ConfigError, saying what to install.
    """
    least, below = UVICORN
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not least <= (int(found[1]), int(found[2])) < below:
        bounds = f">={least[0]}.{least[1]},<{below[0]}.{below[1]}"
        raise ConfigError(
            f"uvicorn {version} is installed, and this Treadle works with uvicorn{bounds} only.",
            hint=f'Run: pip install "uvicorn{bounds}"',
        )


def bind(settings: ServerSection) -> socket.socket:
    """Open the listening socket.

    Raises: ConfigError, saying what to do.
    """
    host, port = settings.host, settings.port
    if not (is_loopback(host) or settings.allow_remote):
        raise ConfigError(
            f"{host} can be reached from other machines.",
            param="server.host",
            hint="Listen on 127.0.0.1, or set server.allow_remote = true: programs then bring a key, people log in.",
        )
    try:
        listener = _listener(host.strip("[]"), port)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.",
            param="server.host" if isinstance(error, socket.gaierror) else "server.port",
            hint=_LISTEN_HINTS.get(error.errno or 0, "Check server.host and server.port."),
        ) from None
    listener.setblocking(False)
    return listener


def _listener(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _connections_max() -> int:
    """Return how many clients may be connected, so that descriptors are left for upstreams, tools and the journal."""
    try:
        import resource
    except ImportError:  # not a Unix
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(1, soft * 3 // 4)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: App, announce: Announce | None, grace_s: float) -> None:
        super().__init__(config)
        self._app = app
        self._announce = announce
        self._grace_s = grace_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start a graceful shutdown; a second signal forces the exit."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then announce the address."""
        await super().startup(sockets)
        if self._announce is not None and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._announce(Address(host=host, port=port, login=self._app.service.first_link()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the runs first, so that no connection has anything left to wait for."""
        drain = asyncio.ensure_future(self._app.service.drain(self._grace_s))
        while not drain.done() and not self.force_exit:
            await asyncio.wait((drain,), timeout=0.1)
        if not drain.done():
            drain.cancel()
            await self._app.service.drain(0.0)
        await super().shutdown(sockets)


class _Worker(_Server):
    """One of several workers on a port: reports when it is ready, and stops accepting as soon as it shuts down."""

    def __init__(
        self, config: uvicorn.Config, app: App, announce: Announce | None, grace_s: float, line: ControlChannel
    ) -> None:
        super().__init__(config, app, announce, grace_s)
        self._line = line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then report readiness to the supervisor."""
        await super().startup(sockets)
        self._line.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Leave new connections to the other workers, close idle ones, then end the runs.

        Connections stay open for `LINGER_S`, because a client that just connected has a request on the way.
        """
        for server in self.servers:
            server.close()
        if not self.force_exit:
            await asyncio.sleep(LINGER_S)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await super().shutdown(sockets)
