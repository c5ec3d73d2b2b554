"""Two Treadles on one PostgreSQL: what begins at one goes on at the other.

TREADLE_STORE__URL=postgresql://… python replicas.py           conversations and streams across both
TREADLE_STORE__URL=postgresql://… python replicas.py --kill    and a run that outlives its process
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

HERE = Path(__file__).parent
WAIT_S = 60.0


class Replica:
    """One process of the gateway."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process = process
        self.url = url

    def ask(self, path: str, body: dict[str, object] | None = None) -> Any:
        """Ask it and read its JSON."""
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.url + path, data, {"content-type": "application/json"}), timeout=WAIT_S) as answer:
            return json.load(answer)

    def lines(self, path: str) -> Iterator[str]:
        """Follow a stream of its."""
        with urlopen(self.url + path, timeout=WAIT_S) as stream:
            for line in stream:
                yield line.decode().rstrip()


@contextmanager
def replica() -> Iterator[Replica]:
    """Start a gateway on a free port and stop it in the end."""
    command = [sys.executable, "-m", "treadle.cli.main", "serve", "--port", "0", "--tools", str(HERE / "reports.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            if not said:
                sys.exit("a replica did not start: `treadle doctor` says why")
            yield Replica(process, said.split()[-1].rstrip("/"))
        finally:
            process.terminate()


def share_a_conversation(one: Replica, other: Replica) -> None:
    """Say something here and go on there."""
    first = one.ask("/v1/responses", {"model": "demo", "input": "Hello, I am Kim."})
    then = {"model": "demo", "input": "What can you do?", "previous_response_id": first["id"]}
    second = other.ask("/v1/responses", then)
    read = other.ask(f"/v1/responses/{second['id']}/input_items")["data"]
    print(f"conversation: begun at one, the other read {len(read)} items of it and answered")


def follow_a_stream(one: Replica, other: Replica) -> None:
    """Begin in the background here and watch it there, while it goes on."""
    begun = one.ask("/v1/responses", report(0.5))
    names = [line.split()[-1] for line in other.lines(f"/v1/responses/{begun['id']}?stream=true") if "event:" in line]
    print(f"stream: begun at one, the other told {names[0]} to {names[-1]}")


def outlive_a_process(one: Replica, other: Replica) -> None:
    """Kill the process in the middle of a tool; the other takes the run over when the lease ends."""
    begun = one.ask("/v1/responses", report(5))
    for line in one.lines(f"/v1/responses/{begun['id']}?stream=true"):
        if line == "event: response.mcp_call.in_progress":
            break
    one.process.kill()
    killed = time.monotonic()
    while (now := other.ask(f"/v1/responses/{begun['id']}"))["status"] in ("queued", "in_progress"):
        if time.monotonic() - killed > WAIT_S:
            sys.exit("nobody took the run over")
        time.sleep(0.5)
    said = "".join(part["text"] for item in now["output"] if item["type"] == "message" for part in item["content"])
    print(f"crash: the other ended the run {now['status']}, {time.monotonic() - killed:.0f} s after the kill: {said}")


def report(seconds: float) -> dict[str, object]:
    """Return the request for a report that takes so long."""
    return {"model": "demo", "input": f"Use write_report with {seconds:g} seconds", "background": True}


def main() -> None:
    """Show it."""
    if not os.environ.get("TREADLE_STORE__URL", "").startswith("postgres"):
        sys.exit("set TREADLE_STORE__URL to a PostgreSQL, such as postgresql://treadle@127.0.0.1/treadle")
    with ExitStack() as stack:
        one, other = stack.enter_context(replica()), stack.enter_context(replica())
        share_a_conversation(one, other)
        follow_a_stream(one, other)
        if "--kill" in sys.argv:
            outlive_a_process(one, other)


if __name__ == "__main__":
    main()
