"""Any other program may open the SQLite file of a server at work: nothing that was answered is lost by it."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from chaos.server import Server, deleted_files, prepare, servers
from chaos.stores import rows, violations
from crash.foreign import PROGRAMS, Foreign, missing

SOME = ("Python reads", "sqlite3 reads", "a writer is killed", "sqlite3 vacuums", "another Treadle lists the runs")
CLIENTS = 2
MORE = 3
"""How many answers each client still gets after the last program has ended."""


class Load:
    """Clients that ask one request after the other, each with an effect, and note which were answered."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stops = threading.Event()
        self._lock = threading.Lock()
        self.answered: list[str] = []
        self.refused: list[tuple[int, bytes]] = []

    @contextmanager
    def going_on(self) -> Iterator["Load"]:
        """Ask from several threads for as long as this is entered, and a little longer."""
        threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stops.set()
            for thread in threads:
                thread.join()

    def _ask(self) -> None:
        left = MORE
        while left:
            left -= self._stops.is_set()
            body = {"model": "demo", "input": "Please pay the amount 7"}
            status, answer = self._server.ask("POST", "/v1/responses", body)
            with self._lock:
                if status == 200:
                    self.answered.append(msgspec.json.decode(answer)["id"])
                else:
                    self.refused.append((status, answer))


def serve_and_kill(folder: Path, names: tuple[str, ...], flags: tuple[str, ...]) -> tuple[Load, list[str]]:
    """Serve while these programs open the journal, then kill all processes; return the load and deleted files."""
    prepare(folder, 0.0)
    journal = folder / "treadle.db"
    deleted: list[str] = []
    with servers(folder, f"sqlite:///{journal}", 1, *flags) as [server]:
        foreign = Foreign(journal)
        load = Load(server)
        with load.going_on():
            for name in names:
                foreign.run(name)
                deleted += [file for pid in server.processes() for file in deleted_files(pid)]
        server.kill_all()
    return load, deleted


def check_nothing_lost(folder: Path, load: Load) -> None:
    """Every answered request is in the journal with its effect, and the database is sound."""
    assert len(load.answered) >= CLIENTS * MORE
    store = f"sqlite:///{folder}/treadle.db"
    kept = {row.response_id: row.status for row in rows(store)}
    assert [load.refused, [each for each in load.answered if kept.get(each) != "completed"]] == [[], []]
    assert violations(store, folder) == []
    with closing(sqlite3.connect(folder / "treadle.db")) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--workers", "2")], ids=["one process", "workers"])
def test_what_was_answered_survives_other_programs_and_a_kill(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Readers, writers and killed ones during load, then SIGKILL of the server: all of it is there."""
    names = tuple(name for name in SOME if not missing(name))
    load, deleted = serve_and_kill(tmp_path, names, flags)
    check_nothing_lost(tmp_path, load)
    assert deleted == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("flags", [(), ("--workers", "2")], ids=["one process", "workers"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_answered_survives_each_program_and_a_kill(tmp_path: Path, name: str, flags: tuple[str, ...]) -> None:
    """The same with each program alone, three times in a row."""
    if program := missing(name):
        pytest.skip(f"{program} is not installed")
    load, deleted = serve_and_kill(tmp_path, (name,) * 3, flags)
    check_nothing_lost(tmp_path, load)
    assert deleted == []
