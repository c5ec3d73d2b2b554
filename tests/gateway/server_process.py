"""A real server in a process of its own, on a free port of loopback."""

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from chaos.server import deleted_files
from warm.start import Popen

BOUND_S = 30.0
PROGRAM = """
import sys
import uvloop
from treadle.config import ServerSection, Settings, StoreSection
from treadle.runtime import Parts, RandomIds, Runtime
from treadle.server.server_process import serve
from treadle.providers.fakes.scripted_model import ScriptedModel, read_script

async def main(store, delay_s, grace_s, script):
    settings = Settings(store=StoreSection(url=store), server=ServerSection(port=0, body_bytes_max=100_000))
    model = ScriptedModel(read_script(script), ids=RandomIds(), chunk_bytes=64) if script else None
    async with Runtime(settings, model=model, parts=Parts(env={}, demo_delay_s=delay_s)) as runtime:
        await serve(runtime, lambda address: print(address.url, flush=True), grace_s)

uvloop.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
print("left", flush=True)
"""


class Served(msgspec.Struct):
    """A running server."""

    process: "subprocess.Popen[str]"
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> "closing[http.client.HTTPConnection]":
        """Return a connection to be used in a with statement."""
        return closing(http.client.HTTPConnection(self.host, self.port, timeout=BOUND_S))

    def leave(self) -> None:
        """Ask it to stop, as a service manager does."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> tuple[int, str]:
        """Return its exit code and what it printed since it was up."""
        rest, _ = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, rest


@contextmanager
def served(folder: Path, *, delay_s: float = 0.0, grace_s: float = 5.0, script: str = "") -> Iterator[Served]:
    """Start a server on the demo model, or on a script's turns, and end it with the test."""
    process = Popen(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{folder}/treadle.db", str(delay_s), str(grace_s), script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stdout is not None
    try:
        host, _, port = process.stdout.readline().strip().removeprefix("http://").partition(":")
        yield Served(process=process, host=host, port=int(port))
        assert deleted_files(process.pid) == [], "it writes to a file of its journal that has no name any more"
    finally:
        process.kill()
        process.communicate()
