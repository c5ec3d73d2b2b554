"""The master, with workers that only say that they are ready and note what becomes of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.server.workers.control_channel import VARIABLE, WorkerAssignment, read_assignment, write_assignment

BOUND_S = 30.0
WORKER = """
import json, os, pathlib, signal, socket, sys
folder = pathlib.Path(sys.argv[1])
post = json.loads(os.environ["TREADLE_WORKER"])
def note(what):
    with (folder / "notes").open("a") as notes:
        notes.write(json.dumps([what, post["number"], os.getpid(), post["owner"], post["dead"]]) + "\\n")
note("began")
if (folder / "refuse").exists():
    sys.exit(7)
line = socket.socket(fileno=post["line"])
def leave(*_):
    note("left")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
note("ready")
line.send(b"ready\\n")
def heard():
    try:
        return line.recv(1000)
    except ConnectionResetError:
        return b""
while said := heard():
    note(said.decode().strip())
note("orphaned")
"""
MASTER = """
import logging, socket, sys
from treadle.server.workers import worker_supervisor
logging.basicConfig(level="INFO", stream=sys.stderr)
worker_supervisor.RESTART_PAUSE_S_MAX = 0.1
listener = socket.create_server(("127.0.0.1", 0))
code = worker_supervisor.WorkerSupervisor([sys.executable, "-S", "-c", sys.argv[1], sys.argv[2]], 2, listener).run()
print("code", code, flush=True)
"""


class Crew:
    """A master in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-c", MASTER, WORKER, str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def notes(self, what: str = "") -> list[tuple[str, int, int, str, list[str]]]:
        """Return what workers noted, or only what begins so."""
        file = self.folder / "notes"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [tuple(note) for note in map(json.loads, lines) if note[0].startswith(what)]

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something to become so."""
        deadline = time.monotonic() + BOUND_S
        while not is_so():
            assert time.monotonic() < deadline, self.notes()
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """Return the workers that began, in order."""
        return [note[2] for note in self.notes("began")]

    def up(self) -> list[int]:
        """Wait until both workers are up and say who they are."""
        self.until(lambda: len(self.notes("ready")) >= 2)
        return self.pids()

    def end(self) -> tuple[int, str]:
        """Return the exit code that the master gave, and its log."""
        out, err = self.process.communicate(timeout=BOUND_S)
        return int(out.split()[-1]), err


@contextmanager
def crew(folder: Path) -> Iterator[Crew]:
    """Start a master and leave nobody behind."""
    running = Crew(folder)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()
        for pid in running.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def test_the_first_worker_is_ready_before_the_others_start_and_all_leave_on_a_signal(tmp_path: Path) -> None:
    """One worker meets a broken configuration or migrates the journal, not all at once; SIGTERM reaches each once."""
    with crew(tmp_path) as running:
        running.up()
        running.process.send_signal(signal.SIGTERM)
        assert running.end()[0] == 0
        assert [note[1] for note in running.notes("began")] == [1, 2]
        assert sorted(note[1] for note in running.notes("left")) == [1, 2]


def test_a_worker_that_dies_is_replaced_and_its_owner_is_told_to_another(tmp_path: Path) -> None:
    """The living one goes on with its runs; the new one has another name."""
    with crew(tmp_path) as running:
        first, second = running.up()
        os.kill(second, signal.SIGKILL)
        running.until(lambda: len(running.pids()) == 3)
        owners = {note[2]: note[3] for note in running.notes("began")}
        running.until(lambda: bool(running.notes("dead")))
        assert [(note[0], note[2]) for note in running.notes("dead")] == [(f"dead {owners[second]}", first)]
        assert running.notes("began")[2][1] == 2
        assert len(set(owners.values())) == 3


def test_where_nobody_lives_the_next_worker_is_told_of_the_dead(tmp_path: Path) -> None:
    """Both die: whoever starts first learns of them."""
    with crew(tmp_path) as running:
        both = running.up()
        os.kill(running.process.pid, signal.SIGSTOP)
        for pid in both:
            os.kill(pid, signal.SIGKILL)
        os.kill(running.process.pid, signal.SIGCONT)
        running.until(lambda: len(running.notes("ready")) == 4)
        began = running.notes("began")
        told = {owner for note in began[2:] for owner in note[4]}
        assert told | {note[0].removeprefix("dead ") for note in running.notes("dead")} == {
            note[3] for note in began[:2]
        }


def test_a_worker_that_cannot_start_ends_the_master_with_its_code(tmp_path: Path) -> None:
    """The first one says what is wrong; no second one says it again."""
    (tmp_path / "refuse").touch()
    with crew(tmp_path) as running:
        assert running.end()[0] == 7
        assert len(running.pids()) == 1


def test_a_worker_that_cannot_start_again_is_tried_again(tmp_path: Path) -> None:
    """While one is missing the other serves; when its trouble is over it comes back."""
    with crew(tmp_path) as running:
        _, second = running.up()
        (tmp_path / "refuse").touch()
        os.kill(second, signal.SIGKILL)
        running.until(lambda: len(running.pids()) >= 5)
        assert running.process.poll() is None
        (tmp_path / "refuse").unlink()
        count = len(running.pids())
        running.until(lambda: len(running.pids()) > count)
        running.process.send_signal(signal.SIGTERM)
        assert running.end()[0] == 0


def test_a_hangup_replaces_all_workers_each_after_its_successor_is_ready(tmp_path: Path) -> None:
    """Two old ones leave in order and two new ones are there; nobody is counted as dead by accident."""
    with crew(tmp_path) as running:
        old = running.up()
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: len(running.notes("left")) == 2 and len(running.pids()) == 4)
        assert [note[2] for note in running.notes("left")] == old
        steps = [(note[0], note[1]) for note in running.notes() if note[0] in ("began", "left")]
        assert steps.index(("left", 1)) > 1
        running.process.send_signal(signal.SIGTERM)
        code, log = running.end()
        assert code == 0
        assert "died" not in log


def test_a_hangup_whose_successors_cannot_start_keeps_the_old_workers(tmp_path: Path) -> None:
    """A configuration that was broken meanwhile stops nothing that runs."""
    with crew(tmp_path) as running:
        old = running.up()
        (tmp_path / "refuse").touch()
        running.process.send_signal(signal.SIGHUP)
        running.until(lambda: len(running.pids()) == 3 and not Path(f"/proc/{running.pids()[2]}").exists())
        running.process.send_signal(signal.SIGTERM)
        assert "could not start" in running.end()[1]
        assert sorted(note[2] for note in running.notes("left")) == sorted(old)


def test_workers_hear_that_their_master_is_gone(tmp_path: Path) -> None:
    """SIGKILL of the master: the line ends, and nobody stays behind."""
    with crew(tmp_path) as running:
        both = running.up()
        running.process.kill()
        running.until(lambda: sorted(note[2] for note in running.notes("orphaned")) == sorted(both))


def test_ctrl_c_reaches_every_worker_once(tmp_path: Path) -> None:
    """They are in groups of their own, so that the terminal does not signal them beside the master."""
    with crew(tmp_path) as running:
        both = running.up()
        assert {os.getpgid(pid) for pid in both} == set(both)
        running.process.send_signal(signal.SIGINT)
        assert running.end()[0] == 0
        assert sorted(note[2] for note in running.notes("left")) == sorted(both)


def test_what_a_worker_is_told_is_told_to_nobody_else(tmp_path: Path) -> None:
    """It is written and read whole, and taken out of the environment."""
    post = WorkerAssignment(
        listener=3, line=4, number=1, owner="a", count=2, numbers=str(tmp_path), dead=("b",), secret="s"
    )
    env = {VARIABLE: write_assignment(post), "OTHER": "1"}
    assert read_assignment(env) == post
    assert env == {"OTHER": "1"}
    assert read_assignment(env) is None
