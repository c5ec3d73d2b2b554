"""The processes of a measurement: started, pinned, measured and ended here, each in an environment without keys."""

import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_S = 90.0
END_S = 10.0
URGENT_NICE = -10
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cores() -> tuple[set[int], set[int]]:
    """Return where to put upstream and load, and where what is measured: apart, where there are two cores."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return ({usable[0]}, {usable[1]}) if len(usable) > 1 else (set(usable), set(usable))


def pin(pid: int, where: set[int]) -> None:
    """Keep a process on its cores, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, where)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this process, and what it starts, have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hurry() -> None:
    """Let this process and what it starts go before others, so that latency on a shared machine means something.

    Linux weighs whole sessions against each other, so a session of our own is weighed, where there is such a thing.
    """
    with suppress(OSError):
        os.setsid()
    try:
        Path("/proc/self/autogroup").write_text(str(URGENT_NICE))
    except OSError:
        with suppress(OSError):
            os.nice(URGENT_NICE)


def clean_env(folder: Path) -> dict[str, str]:
    """Return an environment that holds no key and no setting of the person who measures."""
    places = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "PYTHONPATH": places, "LANG": "C.UTF-8"}


@contextmanager
def process(
    command: Sequence[str | Path],
    where: set[int],
    *,
    folder: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    is_talking: bool = True,
) -> Iterator[subprocess.Popen[str]]:
    """Run a command pinned to its core and end it and what it started; what does not talk writes to its log."""
    with log.open("ab") as errors:
        child = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env={**clean_env(folder), **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if is_talking else errors,
            stderr=errors,
            text=True,
        )
    try:
        pin(child.pid, where)
        yield child
    finally:
        left = tree(child.pid)[1:]
        child.terminate()
        try:
            child.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def python(*words: str) -> list[str]:
    """Return the command that runs a module with this Python."""
    return [sys.executable, "-m", *words]


def read_port(child: subprocess.Popen[str], log: Path) -> int:
    """Wait until the process says where it listens."""
    assert child.stdout is not None
    alarm = threading.Timer(START_S, child.kill)
    alarm.start()
    try:
        while line := child.stdout.readline():
            found = _ADDRESS.search(line)
            if found or line.strip().isdigit():
                return int(found[1] if found else line)
    finally:
        alarm.cancel()
    raise SystemExit(f"bench: {child.args} did not start:\n{log.read_text()[-2000:]}")


def tree(pid: int) -> list[int]:
    """Return a process and all that it started, itself first."""
    found = [pid]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    found += [int(word) for word in (task / "children").read_text().split()]
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process and its children have used, all threads."""
    return sum(_own_cpu_s(each) for each in tree(pid))


def _own_cpu_s(pid: int) -> float:
    # Linux gives it in nanoseconds through the process's own clock; /proc/PID/stat only in ticks of 10 ms, which
    # would be coarser than what is measured.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_bytes(pid: int) -> int:
    """Return what a process and its children hold, shared pages by their share (PSS)."""
    total = 0
    for each in tree(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total
