"""What a newcomer gets wrong on the command line: how it comes about, and what must be said about it."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import apsw
import msgspec
import pytest

from treadle.journal.sqlite.connection import connect
from treadle.journal.sqlite.migrations import migrate, read_migrations

Setting = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[None]]
"""Brings the mistake about, for as long as it lasts."""

_HOLDER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake: the command line, its exit code, what it must say and what to do; and the doctor's line about it."""

    name: str
    line: str
    code: int
    what: str
    way_out: str
    doctor: str = ""
    flags: str = ""
    setting: Setting


def wrote(**files: str) -> Setting:
    """Write files, whose names have _ in place of a dot."""

    @contextmanager
    def set_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
        yield

    return set_up


def given(**variables: str) -> Setting:
    """Set variables."""

    @contextmanager
    def set_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield

    return set_up


def nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[None]:
    """Leave all as it is."""
    return nullcontext()


@contextmanager
def taken_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Listen somewhere."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("TREADLE_SERVER__PORT", str(taken.getsockname()[1]))
        yield


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Refuse the key, as providers do."""
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error"}}'
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Refuse it here too."""
        self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def refusing_upstream() -> Iterator[str]:
    """Serve an upstream that takes no key, and give its address."""
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def refusing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let an upstream refuse the key."""
    with refusing_upstream() as url:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789abcdef")
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield


@contextmanager
def keyless(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the variable of a key be unset."""
    with refusing_upstream() as url:
        text = f'[[upstream]]\nname = "up"\nbase_url = "{url}"\nkey_env = "UP_KEY"\n'
        (folder / "treadle.toml").write_text(text, encoding="utf-8")
        monkeypatch.setenv("TREADLE_CONFIG", "treadle.toml")
        yield


@contextmanager
def locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let another process hold the journal."""
    made(folder)
    monkeypatch.setattr("treadle.journal.sqlite.connection.BUSY_TIMEOUT_MS", 50)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _HOLDER, f"{folder}/j.db"], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.stdin.close()


def changed(sql: str) -> Setting:
    """Change a journal behind Treadle's back."""

    @contextmanager
    def set_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        made(folder)
        connection = apsw.Connection(f"{folder}/j.db")
        connection.execute(sql)
        connection.close()
        yield

    return set_up


def made(folder: Path) -> None:
    """Make a journal."""
    connection = connect(f"{folder}/j.db")
    migrate(connection, read_migrations(), 1.0)
    connection.close()


@contextmanager
def without_driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the driver of PostgreSQL be missing."""
    from importlib import metadata

    for name in [name for name in sys.modules if name.startswith(("asyncpg", "treadle.journal.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    real = metadata.version

    def version(name: str) -> str:
        if name == "asyncpg":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    yield


@contextmanager
def without_sandbox(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the kernel be one that can confine nothing."""
    monkeypatch.setenv("TREADLE_TOOLS__LOCAL__ENABLED", "bash")
    monkeypatch.setenv("TREADLE_TOOLS__LOCAL__SANDBOX", "L0")
    monkeypatch.setattr("treadle.cli.doctor.machine_checks.has_syscall", lambda number: False)
    yield


_STORE = "--store sqlite:///j.db"
MISTAKES = (
    Mistake(
        name="no key",
        setting=keyless,
        line="run hi -m m",
        code=1,
        what="upstream 'up'",
        way_out="export UP_KEY=",
        doctor="upstream up: UP_KEY is unset",
    ),
    Mistake(
        name="wrong key",
        setting=refusing,
        line="run hi -m gpt-5",
        code=1,
        what="Incorrect API key provided",
        way_out="OPENAI_API_KEY",
        doctor="upstream openai: answers 401",
    ),
    Mistake(
        name="upstream down",
        setting=given(OPENAI_BASE_URL="http://127.0.0.1:9/v1"),
        line="run hi -m m",
        code=1,
        what="cannot be reached",
        way_out="is anything listening at 127.0.0.1:9?",
        doctor="upstream openai: refused",
    ),
    Mistake(
        name="model unknown",
        setting=given(TREADLE_DEFAULT_MODEL="gpt-5"),
        line="run hi",
        code=2,
        what="no upstream serves 'gpt-5'",
        way_out="OPENAI_API_KEY",
        doctor="upstream: nobody serves the model 'gpt-5'",
    ),
    Mistake(
        name="port taken",
        setting=taken_port,
        line="serve",
        code=2,
        what="Address already in use",
        way_out="--port 0",
        doctor="port: Address already in use",
    ),
    Mistake(
        name="misspelt key",
        setting=wrote(treadle_toml="[limits]\nmax_iteration = 3\n"),
        line="serve",
        code=2,
        what="treadle.toml:2: limits.max_iteration: unknown key; did you mean max_iterations?",
        way_out="treadle config example",
        doctor="config: did you mean max_iterations?",
    ),
    Mistake(
        name="file that is no TOML",
        setting=wrote(treadle_toml="[server\nport = 1\n"),
        line="serve",
        code=2,
        what="treadle.toml: is not TOML",
        way_out="treadle config example",
        doctor="config: is not TOML",
    ),
    Mistake(
        name="file that nobody agreed to",
        setting=wrote(treadle_toml='[tools]\nload = ["mine.py"]\n'),
        line="serve",
        code=2,
        what="treadle.toml is not trusted",
        way_out="treadle trust",
        doctor="config: is not trusted",
    ),
    Mistake(
        name="file that is missing",
        setting=nothing,
        line="serve --config none.toml",
        code=2,
        what="none.toml: No such file",
        way_out="treadle config example > treadle.toml",
        doctor="config: none.toml",
        flags="--config none.toml",
    ),
    Mistake(
        name="misspelt variable",
        setting=given(TREADLE_SERVER__PROT="1"),
        line="serve",
        code=2,
        what="TREADLE_SERVER__PROT: no key has this variable; did you mean TREADLE_SERVER__PORT?",
        way_out="treadle config example",
        doctor="config: TREADLE_SERVER__PROT",
    ),
    Mistake(
        name="missing extra",
        setting=without_driver,
        line="run hi --store postgresql://db/x",
        code=1,
        what="needs the package asyncpg",
        way_out="pip install 'treadle[postgres]'",
        doctor="extras: store.url needs asyncpg",
        flags="--store postgresql://db/x",
    ),
    Mistake(
        name="old kernel",
        setting=without_sandbox,
        line="serve --port 0",
        code=2,
        what="bash",
        way_out="tools.local.allow_unconfined",
        doctor="kernel: has no openat2",
    ),
    Mistake(
        name="tools with a syntax error",
        setting=wrote(my_py="def f(:\n"),
        line="serve --port 0 --tools my.py",
        code=2,
        what="cannot load tools from my.py: line 1: invalid syntax",
        way_out="correct the code",
        doctor="tools: line 1: invalid syntax",
        flags="--tools my.py",
    ),
    Mistake(
        name="tools that import what is not there",
        setting=wrote(my_py="import no_such_package\n"),
        line="serve --port 0 --tools my.py",
        code=2,
        what="No module named 'no_such_package' (my.py, line 1)",
        way_out="install no_such_package",
        doctor="tools: no_such_package",
        flags="--tools my.py",
    ),
    Mistake(
        name="tools that are missing",
        setting=nothing,
        line="serve --port 0 --tools my.py",
        code=2,
        what="my.py: there is no such file",
        way_out="working directory",
        doctor="tools: no such file",
        flags="--tools my.py",
    ),
    Mistake(
        name="locked database",
        setting=locked,
        line=f"run hi {_STORE}",
        code=1,
        what="another process holds the database",
        way_out="treadle doctor",
        doctor="store: process",
        flags=_STORE,
    ),
    Mistake(
        name="store too new",
        setting=changed("INSERT INTO schema_migrations VALUES (99, 'x', 0)"),
        line=f"run hi {_STORE}",
        code=1,
        what="has schema version 99",
        way_out="use the newer Treadle",
        doctor="store: has schema version 99",
        flags=_STORE,
    ),
    Mistake(
        name="database of another program",
        setting=changed("DROP TABLE schema_migrations"),
        line=f"run hi {_STORE}",
        code=1,
        what="is a database of another program",
        way_out="name another file",
        doctor="store: another program",
        flags=_STORE,
    ),
    Mistake(
        name="file that is no database",
        setting=wrote(j_db="a diary, and not at all a journal"),
        line=f"run hi {_STORE}",
        code=1,
        what="it is not a SQLite database",
        way_out="name another file",
        doctor="store: not a SQLite database",
        flags=_STORE,
    ),
    Mistake(
        name="folder that can not be written",
        setting=nothing,
        line="run hi --store sqlite:////proc/none/j.db",
        code=1,
        what="it cannot be opened for writing",
        way_out="check the path and the permissions",
        doctor="store: can not be written",
        flags="--store sqlite:////proc/none/j.db",
    ),
    Mistake(
        name="wrong store",
        setting=nothing,
        line="serve --store mysql://db/x",
        code=2,
        what="store.url: is not sqlite:///FILE or postgresql://",
        way_out="sqlite:///data.db is a file here",
        doctor="config: store.url",
        flags="--store mysql://db/x",
    ),
    Mistake(
        name="PostgreSQL that is not there",
        setting=nothing,
        line="run hi --store postgresql://127.0.0.1:1/x",
        code=1,
        what="cannot be reached",
        way_out="check that PostgreSQL runs",
        doctor="store: cannot be reached",
        flags="--store postgresql://127.0.0.1:1/x",
    ),
    Mistake(
        name="secret that could be guessed",
        setting=given(TREADLE_SECRET="short", TREADLE_KEYS__REQUIRED="always"),
        line=f"keys create ci {_STORE}",
        code=2,
        what="TREADLE_SECRET has fewer than 32 characters",
        way_out="secrets.token_hex(32)",
        doctor="keys: could be guessed",
        flags=_STORE,
    ),
    Mistake(
        name="open to others by accident",
        setting=given(TREADLE_SERVER__HOST="0.0.0.0"),
        line="serve",
        code=2,
        what="0.0.0.0 can be reached from other machines",
        way_out="--allow-remote",
        doctor="config: can be reached from other machines",
    ),
    Mistake(
        name="gateway that asks itself",
        setting=given(OPENAI_BASE_URL="http://127.0.0.1:8700/v1"),
        line="serve",
        code=2,
        what="is this gateway itself",
        way_out="unset the variable",
        doctor="routes: is this gateway itself",
    ),
    Mistake(
        name="server that is not there",
        setting=nothing,
        line="run hi --server http://127.0.0.1:9",
        code=1,
        what="can not be reached",
        way_out="is `treadle serve` running there?",
    ),
    Mistake(
        name="variable of a key that is unset",
        setting=nothing,
        line="run hi --server http://127.0.0.1:9 --key-env NO_KEY",
        code=2,
        what="the variable NO_KEY is not set",
        way_out="it holds the server's key",
    ),
    Mistake(
        name="prompt without quotes",
        setting=nothing,
        line="run what is this",
        code=2,
        what="the prompt is more than one word",
        way_out="quote it: treadle run 'what is this'",
    ),
    Mistake(
        name="nothing kept yet",
        setting=nothing,
        line=f"sessions list {_STORE}",
        code=1,
        what="there is no journal at j.db",
        way_out="the first run makes one",
    ),
)
