"""A server whose journal is damaged or taken away under it: it says so to everybody who asks, and does nothing more."""

import random
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from chaos.server import Server, open_files, prepare, servers
from chaos.test_kill import effects

NOTICED_S = 1.0
SLACK_S = 10.0
"""Machines that run tests are busy."""
PAY = "Please pay the amount 7"
ASKING: dict[str, tuple[str, str, dict | None]] = {
    "responses": ("POST", "/v1/responses", {"model": "demo", "input": PAY}),
    "responses, streamed": ("POST", "/v1/responses", {"model": "demo", "input": PAY, "stream": True}),
    "chat": ("POST", "/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": PAY}]}),
    "messages": (
        "POST",
        "/v1/messages",
        {"model": "demo", "max_tokens": 100, "messages": [{"role": "user", "content": PAY}]},
    ),
    "gemini": (
        "POST",
        "/v1beta/models/demo:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": PAY}]}]},
    ),
    "runs": ("POST", "/treadle/v1/runs", {"input": PAY}),
    "list of runs": ("GET", "/treadle/v1/runs", None),
    "list of sessions": ("GET", "/treadle/v1/sessions", None),
    "list of approvals": ("GET", "/treadle/v1/approvals", None),
}
GONE = "The files of the journal were deleted or replaced under this server."
OWN_WORDS = {"messages": "overloaded_error", "gemini": "UNAVAILABLE"}
"""How protocols whose errors have no code of their own say that a server cannot answer now."""


def refusals(server: Server, words: str) -> dict[str, tuple[int, str, int, list[str]]]:
    """Ask everything; return the status, the code, how often the reason is named, and what of the machine is named."""
    found: dict[str, tuple[int, str, int, list[str]]] = {}
    for name, asked in ASKING.items():
        status, answer = server.ask(*asked)
        text = answer.decode()
        code = next(iter(re.findall("store_[a-z]+|overloaded_error|UNAVAILABLE", text)), "")
        found[name] = status, code, text.count(words), re.findall(r"[^\s\"]*\.db[^\s\"]*", text)
    return found


def expected(code: str) -> dict[str, tuple[int, str, int, list[str]]]:
    """Return what every protocol must answer."""
    return {name: (503, OWN_WORDS.get(name, code), 1, []) for name in ASKING}


def overwrite(path: Path) -> None:
    """Write over most pages, as a bad disk or another program would; the first one stays."""
    with closing(sqlite3.connect(path)) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    noise = random.Random(7)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in range(4_096, size, 4_096):
            file.seek(at)
            file.write(noise.randbytes(512))


def wait_unready(server: Server) -> dict:
    """Wait until the server says that it is not ready, and return how."""
    deadline = time.monotonic() + NOTICED_S + SLACK_S
    while (found := server.ask("GET", "/readyz"))[0] == 200:
        assert time.monotonic() < deadline, found
    return msgspec.json.decode(found[1])


def _has_journal_open(pid: int) -> bool:
    return any(link.endswith(".db-shm") for link in open_files(pid))


@pytest.mark.slow
def test_after_damage_nothing_runs_and_no_client_reads_a_path(tmp_path: Path) -> None:
    """Pages are overwritten under a server: the first request that meets it is the last that had an effect."""
    prepare(tmp_path, 0.0)
    journal = tmp_path / "treadle.db"
    with servers(tmp_path, f"sqlite:///{journal}", 1) as [server]:
        for _ in range(3):
            assert server.ask(*ASKING["responses"])[0] == 200
        overwrite(journal)
        deadline = time.monotonic() + SLACK_S
        while server.ask(*ASKING["list of runs"])[0] == 200 and server.ask(*ASKING["responses"])[0] == 200:
            assert time.monotonic() < deadline
        assert wait_unready(server) == {"status": "unavailable", "reason": "store: The journal is damaged."}
        before = effects(tmp_path)
        assert refusals(server, "The journal is damaged.") == expected("store_corrupt")
        assert server.ask("GET", "/healthz")[0] == 200
    assert effects(tmp_path) == before
    assert f"the store {journal}: the database is damaged (" in (tmp_path / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--workers", "2")], ids=["one process", "workers"])
@pytest.mark.parametrize(
    "name",
    [
        "treadle.db-wal",
        *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("treadle.db", "treadle.db-shm")),
    ],
)
def test_after_a_file_is_gone_nothing_runs(tmp_path: Path, name: str, flags: tuple[str, ...]) -> None:
    """Each process notices it by itself within a second, is not ready, and refuses in every protocol's own envelope."""
    prepare(tmp_path, 0.0)
    with servers(tmp_path, f"sqlite:///{tmp_path}/treadle.db", 1, *flags) as [server]:
        server.expects_deleted = True
        deadline = time.monotonic() + SLACK_S
        while flags and sum(map(_has_journal_open, server.workers())) < 2:
            assert time.monotonic() < deadline
        assert server.ask(*ASKING["responses"])[0] == 200
        (tmp_path / name).unlink()
        gone = time.monotonic()
        log = tmp_path / "log"
        while log.read_text().count("no work is taken any more") < max(1, len(server.workers())):
            assert time.monotonic() < gone + NOTICED_S + SLACK_S
        before = effects(tmp_path)
        for _ in range(3):
            assert refusals(server, GONE) == expected("store_replaced")
        assert wait_unready(server) == {"status": "unavailable", "reason": f"store: {GONE}"}
    assert effects(tmp_path) == before
