"""The server under attack: `treadle serve` in a process of its own, with a model and tools behind it, and its pulse."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

BOUND_S = 30.0
RECEIVE_TIMEOUT_S = 2.0
MEBIBYTE = 1_048_576
UPSTREAM_KEY = "sk-hostile-0123456789abcdef"
CONFIG = """
default_model = "good"
[server]
port = 0
receive_timeout_s = {receive_timeout_s}
log_level = "warning"
mcp = true
{server}
[store]
url = "sqlite:///{folder}/treadle.db"
[limits]
idle_s = 2.0
[upstreams]
retries = 0
breaker_calls = 100000
[workspace]
enabled = true
default = "card"
[[upstream]]
name = "hostile"
base_url = "{upstream}/v1"
models = ["*"]
connect_s = 5.0
key_env = "HOSTILE_KEY"
{more}
"""
_ADDRESS = re.compile(r"http://(?P<host>[0-9.]+):(?P<port>[0-9]+)/")


class Answer(msgspec.Struct, frozen=True):
    """What came back: status 0 is a connection that was closed without a word."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class House:
    """A running server and what can be known of it from outside."""

    def __init__(self, process: "subprocess.Popen[str]", host: str, port: int, folder: Path) -> None:
        self.process = process
        self.host = host
        self.port = port
        self.folder = folder
        self.key = ""
        self.kept = ""
        self.kept_body = b""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a well-formed request with that body."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        sent = {"content-type": "application/json"} if data is not None else {}
        sent |= {"authorization": f"Bearer {self.key}"} if self.key else {}
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=BOUND_S)) as connection:
            # Refused before all of it was sent: the answer is there.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())

    def raw(self, request: bytes, *, more: Iterator[bytes] | None = None) -> Answer:
        """Send bytes as they are, and return the first answer to them."""
        with socket.create_connection((self.host, self.port), timeout=BOUND_S) as connection:
            try:
                connection.sendall(request)
                for piece in more or ():
                    connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return read_answer(connection)

    def memory_bytes(self, *, peak: bool = False) -> int:
        """Return what the process holds, or the most it held since it was last asked to forget."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        name = "VmHWM" if peak else "VmRSS"
        return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) * 1024

    def forget_peak(self) -> None:
        """Begin to measure the peak anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def keep(self) -> None:
        """Store a response that must still be there after everything."""
        answer = self.ask("POST", "/v1/responses", {"model": "good", "input": "What must not be lost."})
        assert answer.status == 200, answer.text
        self.kept, self.kept_body = answer.json["id"], answer.body

    def is_well(self) -> str:
        """Return what is wrong with the house, or nothing: it lives, answers, and has lost nothing."""
        if self.process.poll() is not None:
            return f"the process ended with {self.process.returncode}"
        healthy = self.ask(
            "POST", "/v1/chat/completions", {"model": "good", "messages": [{"role": "user", "content": "hi"}]}
        )
        if healthy.status != 200 or not healthy.json["choices"][0]["message"]["content"]:
            return f"a healthy request got {healthy.status}: {healthy.text[:300]}"
        kept = self.ask("GET", f"/v1/responses/{self.kept}")
        if (kept.status, kept.body) != (200, self.kept_body):
            return f"what was kept is gone or changed: {kept.status} {kept.text[:300]}"
        return ""


def read_answer(connection: socket.socket) -> Answer:
    """Read one answer from a socket, to the end of its body or of the connection."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        body = response.read()
    except (ConnectionResetError, http.client.BadStatusLine):
        return Answer(0, {}, b"")
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def environment() -> dict[str, str]:
    """Return what the processes of a house are told."""
    secret = "a secret of a test, with thirty-two characters"
    return {**os.environ, "HOSTILE_KEY": UPSTREAM_KEY, "TREADLE_SECRET": secret}


def make_key(running: House) -> str:
    """Make the first key of a house, as its owner does on the command line."""
    command = [sys.executable, "-m", "treadle.cli.main", "keys", "create", "owner", "--role", "admin", "--json"]
    config = ["--config", str(running.folder / "treadle.toml")]
    made = subprocess.run([*command, *config], capture_output=True, text=True, timeout=BOUND_S, env=environment())
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)["key"]


@contextmanager
def house(
    folder: Path, upstream: str, *, server: str = "", more: str = "", flags: tuple[str, ...] = ()
) -> Iterator[House]:
    """Start a server with a configuration of its own, and end it."""
    config = folder / "treadle.toml"
    config.write_text(
        CONFIG.format(folder=folder, upstream=upstream, server=server, more=more, receive_timeout_s=RECEIVE_TIMEOUT_S)
    )
    log = (folder / "server.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "treadle.cli.main", "serve", "--config", str(config), *flags],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "HOSTILE_KEY": UPSTREAM_KEY,
            "TREADLE_SECRET": "a secret of a test, with thirty-two characters",
        },
    )
    assert process.stdout is not None
    try:
        found = next((match for line in process.stdout if (match := _ADDRESS.search(line))), None)
        assert found is not None, (folder / "server.log").read_text()
        running = House(process, found["host"], int(found["port"]), folder)
        yield running
    finally:
        process.kill()
        process.communicate()
        log.close()
