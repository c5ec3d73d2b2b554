"""Real processes, killed without warning. `make chaos` runs them."""

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

BOUND_S = 30.0
TOOLS = '''
import pathlib, time
from treadle import tool

HERE = pathlib.Path(__file__).parent


@tool(effect="write", timeout_s=60)
def pay(amount: int) -> str:
    """Pay an amount of money.

    Args:
        amount: How much to pay.
    """
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{amount}\\n")
    (HERE / "started").write_text(f"paid {amount}")
    time.sleep(60)
    return "paid"
'''


class Server:
    """`treadle serve` as a person starts it."""

    def __init__(self, folder: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "treadle.cli.main",
            "serve",
            "--port",
            "0",
            "--tools",
            str(folder / "tools.py"),
        ]
        self._process = subprocess.Popen(
            [*command, "--store", f"sqlite:///{folder}/treadle.db"],
            cwd=folder,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.port = self._find_port()

    def _find_port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "http://127.0.0.1:" in line:
                return int(line.split("http://127.0.0.1:")[1].split("/")[0].split()[0])
        raise AssertionError("the server said nothing of its address")

    def ask(self, method: str, path: str, body: dict | None = None) -> Iterator[dict]:
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

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


def test_a_payment_is_never_made_twice(tmp_path: Path):
    """Killed while a tool with effects runs: after a restart its call is closed as unknown and is not run again."""
    (tmp_path / "tools.py").write_text(TOOLS)
    os.mkfifo(tmp_path / "started")
    first = Server(tmp_path)
    try:
        events = first.ask("POST", "/treadle/v1/runs", {"input": "Please pay the amount 42", "stream": True})
        run_id = next(event["run_id"] for event in events if event["type"] == "run.started")
        assert (tmp_path / "started").read_text() == "paid 42"
    finally:
        first.kill()
    second = Server(tmp_path)
    try:
        told = list(second.ask("GET", f"/treadle/v1/runs/{run_id}/events"))
    finally:
        second.kill()
    assert [event["type"] for event in told][-2:] == ["tool.finished", "run.ended"]
    assert told[-2]["result"]["rc"] == "interrupted"
    assert (told[-1]["status"], told[-1]["error"]["code"]) == ("failed", "interrupted")
    assert (tmp_path / "ledger").read_text() == "42\n"
