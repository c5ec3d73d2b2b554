"""Programs that open the journal of a server at work: readers, writers, copies, and killed ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from warm import start

BOUND_S = 120.0
_OPEN = "import os, signal, sqlite3, sys\nc = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n"
_KILL = "os.kill(os.getpid(), signal.SIGKILL)\n"
_OWN_TABLE = "c.execute('CREATE TABLE IF NOT EXISTS own_notes (note TEXT)')\n"


class Program(msgspec.Struct, frozen=True):
    """A program: Python source or a command. `{db}` is the journal, `{copy}` a name nothing has yet."""

    python: str = ""
    command: tuple[str, ...] = ()
    exit_code: int = 0


def _sqlite3(*statements: str) -> Program:
    return Program(command=("sqlite3", "-cmd", ".timeout 60000", "{db}", *statements))


PROGRAMS: dict[str, Program] = {
    "Python reads": Program(_OPEN + "c.execute('SELECT count(*) FROM messages').fetchall()\nc.close()\n"),
    "Python copies by its backup": Program(
        _OPEN + "target = sqlite3.connect(sys.argv[2])\nc.backup(target)\ntarget.close()\nc.close()\n"
    ),
    "Python writes a table of its own": Program(
        _OPEN + _OWN_TABLE + "c.execute(\"INSERT INTO own_notes VALUES ('one')\")\nc.close()\n"
    ),
    "Python checkpoints and empties the log": Program(
        _OPEN + "c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()\nc.close()\n"
    ),
    "a reader is killed": Program(
        _OPEN + "c.execute('BEGIN')\nc.execute('SELECT count(*) FROM events').fetchall()\n" + _KILL, exit_code=-9
    ),
    "a writer is killed": Program(
        _OPEN + _OWN_TABLE + "c.execute('BEGIN IMMEDIATE')\nc.execute('DELETE FROM own_notes')\n" + _KILL,
        exit_code=-9,
    ),
    "another Treadle lists the runs": Program(
        command=(sys.executable, "-m", "treadle.cli.main", "logs", "--json", "--store", "sqlite:///{db}")
    ),
    "another Treadle makes a backup": Program(
        command=(sys.executable, "-m", "treadle.cli.main", "store", "backup", "{copy}", "--store", "sqlite:///{db}")
    ),
    "cp copies the files": Program(command=("cp", "{db}", "{db}-wal", "{db}-shm", "{copies}")),
    "sqlite3 reads": _sqlite3("SELECT count(*) FROM runs"),
    "sqlite3 copies by .backup": _sqlite3(".backup '{copy}'"),
    "sqlite3 copies by VACUUM INTO": _sqlite3("VACUUM INTO '{copy}'"),
    "sqlite3 vacuums": _sqlite3("VACUUM"),
    "sqlite3 checkpoints and empties the log": _sqlite3("PRAGMA wal_checkpoint(TRUNCATE)"),
}


def missing(name: str) -> str:
    """Return the program that is not installed, nothing where it is."""
    command = PROGRAMS[name].command
    return command[0] if command and shutil.which(command[0]) is None else ""


class Foreign:
    """Runs the programs against one journal."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._copies = journal.parent / "copies"
        self._copies.mkdir()
        self._made = 0

    def run(self, name: str) -> None:
        """Run one of the programs to its end, which must be the one it should have."""
        program = PROGRAMS[name]
        self._made += 1
        words = {"db": str(self._journal), "copies": str(self._copies), "copy": f"{self._copies}/{self._made}.db"}
        if program.python:
            command = [sys.executable, "-c", program.python, words["db"], words["copy"]]
        else:
            command = [each.format(**words) for each in program.command]
        run = start.run if command[0] == sys.executable else _run
        done = run(command, timeout=BOUND_S, cwd=self._copies, env={**os.environ, "HOME": str(self._copies)})
        assert done.returncode == program.exit_code, (name, done.returncode, done.stdout, done.stderr)


def _run(command: list[str], **more: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
