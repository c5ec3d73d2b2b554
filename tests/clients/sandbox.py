"""Runs a client as its user would, in a home of its own, for a bounded time, behind a proxy that lets nothing out.

The proxy remembers which hosts were asked for. Every process of the client ends with it.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from clients import node

RUN_S = 90
SYSTEM_PATHS = ("/usr/local/bin", "/usr/bin", "/bin")


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a client's process ended, what it printed, and which hosts outside it tried to reach."""

    code: int
    output: str
    errors: str
    outside: frozenset[str]


class Home:
    """A user's home and working folder under `folder`, with commands of `paths` installed."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        self._home = folder / "home"
        self.work = folder / "work"
        self._home.mkdir()
        self.work.mkdir()
        self._path = os.pathsep.join((*map(str, paths), str(node.BIN), *SYSTEM_PATHS))

    def write(self, path: str, text: str) -> None:
        """Write one file; `~/` is the home, anything else is under the working folder."""
        target = self._home / path.removeprefix("~/") if path.startswith("~/") else self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def link(self, name: str, target: Path) -> None:
        """Make something from elsewhere appear in the working folder."""
        (self.work / name).symlink_to(target)

    def run(self, *command: str | Path, environment: Mapping[str, str] = {}) -> Ran:
        """Run a command to its end; one that takes too long is ended, and fails the test."""
        with _guarded() as (proxy, outside):
            process = subprocess.Popen(
                command,
                cwd=self.work,
                env={**self._environment(proxy), **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
            try:
                output, errors = process.communicate(timeout=RUN_S)
            finally:
                _end(process)
        return Ran(code=process.returncode, output=output, errors=errors, outside=frozenset(outside))

    def _environment(self, proxy: str) -> dict[str, str]:
        """Return an environment in which only loopback is reached directly.

        IS_SANDBOX is for tests that root runs: without it Claude Code refuses root to skip permissions.
        """
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
        direct = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        own = {"HOME": str(self._home), "PATH": self._path, "LANG": "C.UTF-8", "IS_SANDBOX": "1"}
        return {**own, **proxies, **direct}


def _end(process: subprocess.Popen[str]) -> None:
    """End what is left of the process's own session, and reap it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    process.wait()


@contextmanager
def _guarded() -> Iterator[tuple[str, set[str]]]:
    """Serve a proxy that refuses everything; yield its address and the hosts it was asked for."""
    outside: set[str] = set()

    class Refusal(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            outside.add(self.path)
            with suppress(ConnectionError):
                self.send_error(403)

        do_CONNECT = do_GET = do_POST = do_HEAD = do_PUT = refuse

        def log_message(self, *_: object) -> None:
            """Keep standard error clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="proxy")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", outside
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
