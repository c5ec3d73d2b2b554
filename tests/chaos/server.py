"""`treadle serve` as a person starts it, over any store, with tools whose effects are lines in a file."""

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from warm.start import Popen

BOUND_S = 60.0
TOOLS = '''
import json, os, pathlib, time
from treadle import tool
from treadle.tools.tool_context import ToolContext

HERE = pathlib.Path(__file__).parent


def done(name, context):
    line = [context.run_id, context.call_id, name, context.idempotency_key]
    effect = dict(zip(("run_id", "call_id", "tool", "key"), line))
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(json.dumps(effect) + "\\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    time.sleep(float((HERE / "pause").read_text()))


@tool(effect="write", timeout_s=60)
def pay(amount: int, context: ToolContext) -> str:
    """Pay an amount of money.

    Args:
        amount: How much to pay.
    """
    done("pay", context)
    return "paid"


@tool(effect="write", approval="always", timeout_s=60)
def wire(amount: int, context: ToolContext) -> str:
    """Wire an amount of money.

    Args:
        amount: How much to wire.
    """
    done("wire", context)
    return "wired"


@tool(effect="idempotent", timeout_s=60)
def upsert(amount: int, context: ToolContext) -> str:
    """Upsert an amount of money.

    Args:
        amount: How much to note down.
    """
    done("upsert", context)
    return "noted"
'''


def prepare(folder: Path, pause_s: float) -> None:
    """Write the tools, each of which takes this long after its effect."""
    (folder / "tools.py").write_text(TOOLS)
    (folder / "pause").write_text(str(pause_s))


def open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process lead to; nothing of one that has ended."""
    links: list[str] = []
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                links.append(os.readlink(fd))
    return links


def deleted_files(pid: int) -> list[str]:
    """Return the files of a journal that a process holds open although they have no name any more."""
    suffixes = tuple(f".db{each} (deleted)" for each in ("", "-wal", "-shm"))
    return [link for link in open_files(pid) if link.endswith(suffixes)]


class Server:
    """A running server. However it is ended: none of its processes may hold a file of a journal that has no name."""

    def __init__(
        self, folder: Path, store: str, *flags: str, env: Mapping[str, str] | None = None, program: str = ""
    ) -> None:
        start = ["-c", program] if program else ["-m", "treadle.cli.main"]
        command = [sys.executable, *start, "serve", "--port", "0"]
        self._log = (folder / "log").open("a")
        # What is loaded before Python begins cannot be given to a process that is forked from another.
        begin = subprocess.Popen if program or "LD_PRELOAD" in (env or {}) else Popen
        self._process = begin(
            [*command, "--tools", str(folder / "tools.py"), "--store", store, *flags],
            cwd=folder,
            env={**os.environ, "NO_COLOR": "1", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.port = 0
        self.expects_deleted = False
        """Whether a test takes the files away by itself."""
        self._begun: list[Generator[dict, None, None]] = []

    def open(self) -> None:
        """Wait until it says where it listens."""
        self.port = self._find_port()

    def _find_port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "http://127.0.0.1:" in line:
                return int(line.split("http://127.0.0.1:")[1].split("/")[0].split()[0])
        raise AssertionError(f"the server did not start: {Path(self._log.name).read_text()[-2_000:]}")

    @property
    def is_alive(self) -> bool:
        """Tell whether the process still runs."""
        return self._process.poll() is None

    def ask(self, method: str, path: str, body: dict | None = None) -> tuple[int, bytes]:
        """Send a request and return the whole answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        try:
            headers = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stream(self, method: str, path: str, body: dict | None = None) -> Generator[dict, None, None]:
        """Send a request and yield the events of its answer as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        try:
            headers = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            for line in connection.getresponse():
                if line.startswith(b"data:"):
                    yield msgspec.json.decode(line.removeprefix(b"data:"))
        finally:
            connection.close()

    def begin(self, text: str) -> tuple[str, Generator[dict, None, None]]:
        """Start a run; return its id, which is durable then, and the rest of its events."""
        events = self.stream("POST", "/treadle/v1/runs", {"input": text, "stream": True})
        self._begun.append(events)
        return next(event["run_id"] for event in events if event["type"] == "run.started"), events

    def background(self, text: str) -> str:
        """Begin a run in the background and return its id."""
        status, answer = self.ask("POST", "/v1/responses", {"model": "demo", "input": text, "background": True})
        assert status == 200, answer
        return msgspec.json.decode(answer)["id"]

    @property
    def pid(self) -> int:
        """Return the process."""
        return self._process.pid

    def check_files(self) -> None:
        """Fail where a process of it writes to a file of a journal that others do not see any more."""
        found = {pid: deleted for pid in self.processes() if (deleted := deleted_files(pid))}
        assert self.expects_deleted or found == {}, f"files of the journal that have no name any more: {found}"

    def leave(self) -> int:
        """Ask it to leave in good order, wait until it has, and return its exit code."""
        self.check_files()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(BOUND_S)

    def workers(self) -> list[int]:
        """Return the processes that it started, where there are several on its port."""
        with suppress(OSError):
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        return []

    def processes(self) -> list[int]:
        """Return every process of the server that is alive: the first one and its workers."""
        return [self.pid, *self.workers()]

    def kill_all(self) -> None:
        """End it and all of its workers at once, as a power cut would."""
        self.check_files()
        for pid in reversed(self.processes()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kill()

    def freeze(self) -> None:
        """Stop it as a hanging machine would."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would; without effect the second time."""
        try:
            if self.is_alive:
                self.check_files()
        finally:
            self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for events in self._begun:
            events.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


@contextmanager
def servers(
    folder: Path, store: str, count: int, *flags: str, env: Mapping[str, str] | None = None, program: str = ""
) -> Iterator[list[Server]]:
    """Start servers over one store, and leave none of them behind."""
    started: list[Server] = []
    try:
        for _ in range(count):
            started.append(Server(folder, store, *flags, env=env, program=program))
            started[-1].open()
        yield started
    finally:
        for server in started:
            server.kill()
