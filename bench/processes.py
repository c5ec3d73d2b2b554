"""The processes of the benchmark: started, pinned, measured and ended here."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_S = 20.0
ANSWER_S = 60.0
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cores() -> tuple[set[int], set[int]]:
    """Return where to put upstream and load, and where the server: apart, where there are two cores."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return ({usable[0]}, {usable[1]}) if len(usable) > 1 else (set(usable), set(usable))


@contextmanager
def process(arguments: list[str], where: set[int], *, folder: Path, log: Path) -> Iterator[subprocess.Popen]:
    """Run a Python process pinned to its core, in an environment without keys, and end it."""
    env = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(child.pid, where)
        yield child
    finally:
        child.terminate()
        try:
            child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


def read_port(child: subprocess.Popen, log: Path) -> int:
    """Wait until the process says where it listens."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and (line := child.stdout.readline()):
        found = _ADDRESS.search(line)
        if found or line.strip().isdigit():
            return int(found[1] if found else line)
    raise SystemExit(f"bench: {' '.join(child.args[1:])} did not start:\n{log.read_text()[-2000:]}")


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has used, all threads.

    Linux gives it in nanoseconds through the process's own clock; /proc/PID/stat only in ticks of 10 ms, which
    would be coarser than what is measured.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


class Load:
    """The load generator's other end."""

    def __init__(self, child: subprocess.Popen) -> None:
        self._child = child

    def run(self, port: int, body: dict, count: int, events_min: int) -> float:
        """Make the requests and return the seconds they took together."""
        job = {"port": port, "body": json.dumps(body, separators=(",", ":")), "count": count, "events_min": events_min}
        self._child.stdin.write(json.dumps(job) + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._child.stdout.readline() or '{"error": "the load generator died"}')
        if "error" in answer:
            raise SystemExit(f"bench: {body['model']}: {answer['error']}")
        return answer["wall_s"]


def write_config(folder: Path, upstream_port: int, persistence: str) -> Path:
    """Write the settings of one server: one upstream, one tool, nothing logged but warnings."""
    file = folder / f"journal-{persistence}.toml"
    file.write_text(
        f"""\
default_model = "bench-plain"
[server]
port = 0
log_level = "warning"
[store]
url = "sqlite:///{folder}/bench-{persistence}.db"
persistence = "{persistence}"
[tools]
load = ["{ROOT}/bench/tools.py"]
[[upstream]]
name = "bench"
base_url = "http://127.0.0.1:{upstream_port}/v1"
models = ["bench-*"]
"""
    )
    return file
