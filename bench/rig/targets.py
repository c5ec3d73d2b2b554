"""What can be asked: the upstream itself and everything that may stand before it, all with the same requests."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.rig.certificate import make_certificate
from bench.rig.processes import ROOT, START_S, cores, cpu_s, process, python, raise_file_limit, read_port
from bench.rig.requests import SHORT

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
JOURNALS = ("off", "SQLite", "PostgreSQL")
PARTS = "Treadle's parts alone"
STREAMS, BURSTS = 100, 16
"""Streams at once: paced, and as fast as they come."""


class Broken(Exception):
    """What was asked did not answer as it should."""


class Target(NamedTuple):
    """Something that listens. `protocols` are those it can be asked in; `more` goes into every body, `prefix` before
    the name of the model, `base` before the path.

    The others are what it bears: paced streams at once, bursts at once, connections, requests a second.
    """

    name: str
    port: int
    pid: int | None = None
    protocols: tuple[str, ...] = ("chat",)
    headers: Mapping[str, str] = {}
    prefix: str = ""
    more: Mapping[str, object] = {}
    streams_max: int = STREAMS
    bursts_max: int = BURSTS
    connections_max: int = 1_000_000
    rate_max: float = 1_000_000.0
    base: str = ""

    @property
    def is_own(self) -> bool:
        """Say whether this is Treadle or the upstream, whose failure ends a measurement."""
        return self.pid is None or self.name.startswith("Treadle")

    def cpu_s(self) -> float:
        """Return the CPU time it has used so far."""
        return 0.0 if self.pid is None else cpu_s(self.pid)

    def job(
        self, protocol: str, model: str, *, stream: bool, asked: Mapping[str, object] | None = None, **fields: object
    ) -> dict[str, object]:
        """Return a job of the load generator for this target; `asked` goes into the body, which else is one word."""
        named = {"model": f"{self.prefix}{model}", "stream": stream}
        body = {**named, **SHORT[protocol], **self.more, **(asked or {})}
        return {
            "target": self.name,
            "port": self.port,
            "path": f"{self.base}{PATHS[protocol]}",
            "headers": dict(self.headers),
            "body": json.dumps(body, separators=(",", ":")),
            **fields,
        }


class Load:
    """The load generator's other end."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self.pid = child.pid

    def run(self, job: Mapping[str, object]) -> dict:
        """Let it do a job and return what it says."""
        self._write(json.dumps(job))
        return self._read(job)

    def hold(self, job: Mapping[str, object]) -> int:
        """Let it open streams and return how many there are; they stay until `release`."""
        self._write(json.dumps({**job, "mode": "hold"}))
        self._held = job
        return self._read(job)["open"]

    def release(self) -> None:
        """Let go of the streams that are held."""
        self._write("")
        self._read(self._held)

    def _write(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def _read(self, job: Mapping[str, object]) -> dict:
        assert self._child.stdout is not None
        answer = json.loads(self._child.stdout.readline() or '{"error": "the load generator died"}')
        if "error" in answer:
            raise Broken(f"{job['target']} {job['path']}: {answer['error']}")
        return answer


class Stage:
    """A folder, an upstream, a load generator, and what is put between them; ends with its stack."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        raise_file_limit()
        self.folder = folder
        self.here, self.there = cores()
        self._stack = stack
        child, log = self.start("upstream", python("bench.rig.upstream"), is_here=True)
        self.upstream = Target("direct", read_port(child, log), None)
        self.upstream_pid = child.pid
        self.load = Load(self.start("load", python("bench.rig.driver"), is_here=True)[0])

    def load_cpu_s(self) -> float:
        """Return the CPU time that upstream and load generator have used so far."""
        return cpu_s(self.upstream_pid) + cpu_s(self.load.pid)

    def start(
        self,
        name: str,
        command: list[str | Path] | list[str],
        *,
        is_here: bool = False,
        env: Mapping[str, str] | None = None,
        is_talking: bool = True,
    ) -> tuple[subprocess.Popen[str], Path]:
        """Start a process and return it with its log."""
        log = self.folder / f"{name}.log"
        where = self.here if is_here else self.there
        opened = process(command, where, folder=self.folder, log=log, env=env, is_talking=is_talking)
        return self._stack.enter_context(opened), log

    def treadle(self, journal: str, *, tools: int | None = 0) -> Target:
        """Start `treadle serve` with its journal off, on SQLite or on PostgreSQL; with its tool and so many more."""
        base_url = f"http://127.0.0.1:{self.upstream.port}/v1"
        config = write_config(self.folder, base_url, journal, self.store(journal), tools)
        child, log = self.start(f"treadle-{journal}", python("treadle.cli.main", "serve", "--config", str(config)))
        title = "Treadle, no journal" if journal == "off" else f"Treadle, {journal}"
        return Target(title, read_port(child, log), child.pid, tuple(PATHS))

    def treadle_over_tls(self) -> Target:
        """Start `treadle serve` without a journal, before an upstream that is asked by TLS."""
        made = make_certificate(self.folder)
        command = python("bench.rig.upstream", str(made.file), str(made.key))
        upstream, log = self.start("upstream-tls", command, is_here=True)
        base_url = f"https://127.0.0.1:{read_port(upstream, log)}/v1"
        config = write_config(self.folder, base_url, "off", self.store("off"), name="tls")
        served = python("treadle.cli.main", "serve", "--config", str(config))
        child, log = self.start("treadle-tls", served, env={"SSL_CERT_FILE": str(made.file)})
        return Target("Treadle, TLS", read_port(child, log), child.pid, tuple(PATHS))

    def parts(self, journal: str) -> Target:
        """Start what Treadle is made of with nothing between, its journal off or on SQLite."""
        base_url = f"http://127.0.0.1:{self.upstream.port}/v1"
        store = "off" if journal == "off" else self.store(f"parts-{journal}")
        child, log = self.start(f"parts-{journal}", python("bench.rig.floor", base_url, store))
        title = "no journal" if journal == "off" else journal
        return Target(f"{PARTS}, {title}", read_port(child, log), child.pid)

    def store(self, journal: str) -> str:
        """Return the address of a new store; PostgreSQL is the one that the tests start."""
        if journal != "PostgreSQL":
            return f"sqlite:///{self.folder}/bench-{journal}.db"
        from postgres import PostgresServer

        database = PostgresServer(on_disk=True)
        self._stack.callback(database.remove)
        database.start()
        return database.url("bench")


def write_config(folder: Path, base_url: str, journal: str, store: str, tools: int | None = 0, name: str = "") -> Path:
    """Write the settings of one server: one upstream, one tool and so many more, or none, only warnings logged."""
    file = folder / f"treadle-{name or journal}.toml"
    loaded = [] if tools is None else [str(ROOT / "bench" / "rig" / "adder.py")]
    if tools:
        loaded.append(str(write_tools(folder, tools)))
    file.write_text(
        f"""\
default_model = "bench-plain"
[server]
port = 0
log_level = "warning"
[store]
url = {json.dumps(store)}
persistence = "{"off" if journal == "off" else "on"}"
[tools]
load = {json.dumps(loaded)}
[limits]
max_iterations = 1200
max_total_tool_calls = 1200
tools_max = 1100
[[upstream]]
name = "bench"
base_url = "{base_url}"
models = ["bench-*"]
"""
    )
    return file


def write_tools(folder: Path, count: int) -> Path:
    """Write a module of so many tools that do nothing."""
    file = folder / f"tools_{count}.py"
    lines = ["from treadle import tool", ""]
    for number in range(count):
        lines += [
            f'@tool(name="look_{number}", effect="read")',
            f"async def look_{number}(place: str, depth: int = 1) -> str:",
            f'    """Look at a place, in the manner of number {number}."""',
            "    return place",
            "",
        ]
    file.write_text("\n".join(lines))
    return file


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(url: str, child: subprocess.Popen[str], log: Path) -> None:
    """Wait until something answers there, whatever it says."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and child.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2.0):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"did not start: {log.read_text(errors='replace')[-400:]}")
