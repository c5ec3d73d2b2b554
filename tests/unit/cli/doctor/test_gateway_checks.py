"""Whether the gateway could serve: who has the port, whether keys are known again, and why one is refused."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from treadle.access.keyring import Keyring
from treadle.cli.doctor.gateway_checks import (
    check_addresses,
    check_client_key,
    check_data,
    check_hosts,
    check_keys,
    check_port,
)
from treadle.cli.main import main
from treadle.config import ServerSection, Settings, StoreSection, Upstream
from treadle.config.access_settings import KeysSection
from treadle.core.errors import TreadleError
from treadle.journal.keys_interface import KeyGrant
from treadle.journal.open_store import open_store
from treadle.runtime import RandomIds, SystemClock
from treadle.server.auth.installation_secret import secret_for

SECRET = "0123456789abcdef0123456789abcdef"
OTHER = SECRET[::-1]


@pytest.fixture
def treadle_port() -> Iterator[int]:
    """Answer as Treadle does when it is asked whether it lives."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("x-request-id", "req_0")
            self.end_headers()
            self.wfile.write(b'{"status":"ok"}')

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_treadle_that_runs_already_is_told_from_another_program(treadle_port: int) -> None:
    """One is fine, the other has taken the port."""
    ours = check_port(Settings(server=ServerSection(port=treadle_port)))
    assert (ours.state, "Treadle runs there already" in ours.detail) == ("note", True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = check_port(Settings(server=ServerSection(port=taken.getsockname()[1])))
    assert (found.state, "another program" in found.advice) == ("note", True)


def test_a_gateway_that_would_ask_itself_is_broken() -> None:
    """The variable that points clients here stands in the shell of the server."""
    own = Upstream(name="openai", base_url="http://127.0.0.1:8700/v1")
    found = check_addresses(Settings(upstream=(own,)))
    assert (found.state, "this gateway itself" in found.detail, "unset" in found.advice) == ("broken", True, True)
    assert check_addresses(Settings()).state == "ok"


def exposed(folder: Path, **changes: str) -> Settings:
    """Settings of a gateway that others can reach."""
    server = ServerSection(host="0.0.0.0", allow_remote=True)
    return Settings(server=server, store=StoreSection(url=f"sqlite:///{folder}/j.db"), keys=KeysSection(**changes))


def test_an_exposed_gateway_without_keys_is_worth_knowing(tmp_path: Path) -> None:
    """And one whose keys nobody could know again is broken."""
    assert check_keys(exposed(tmp_path, required="never"), {}).state == "note"
    assert check_keys(exposed(tmp_path), {}).state == "ok"
    short = check_keys(exposed(tmp_path), {"TREADLE_SECRET": "short"})
    assert (short.state, "could be guessed" in short.detail, "secrets" in short.advice) == ("broken", True, True)
    lost = Settings(server=exposed(tmp_path).server, store=StoreSection(url="postgresql://a/b"))
    assert (check_keys(lost, {}).state, "TREADLE_SECRET" in check_keys(lost, {}).advice) == ("broken", True)


def test_a_gateway_that_answers_to_no_name_is_worth_knowing(tmp_path: Path) -> None:
    """Others can reach it, and all of them would be refused."""
    found = check_hosts(exposed(tmp_path))
    assert (found.state, "server.allowed_hosts" in found.advice) == ("note", True)
    named = ServerSection(host="0.0.0.0", allow_remote=True, allowed_hosts=("gateway.example.org",))
    assert check_hosts(Settings(server=named)).state == "ok"
    assert check_hosts(Settings(server=ServerSection(host="192.0.2.7", allow_remote=True))).state == "ok"
    assert check_hosts(Settings()).detail == "answers to 127.0.0.1 and localhost"


def test_two_secrets_are_worth_knowing(tmp_path: Path) -> None:
    """Keys that were made with one are refused with the other."""
    (tmp_path / "secret.key").write_bytes(b"x" * 32)
    found = check_keys(exposed(tmp_path), {"TREADLE_SECRET": SECRET})
    assert (found.state, "two secrets" in found.detail) == ("note", True)
    (tmp_path / "secret.key").write_bytes(SECRET.encode())
    assert check_keys(exposed(tmp_path), {"TREADLE_SECRET": SECRET}).state == "ok"


def make_key(folder: Path, name: str, *, secret: str = SECRET, revoked: bool = False) -> str:
    """Make a key in the journal and return it."""

    async def make() -> str:
        store = open_store(f"{folder}/j.db")
        await store.open()
        ring = Keyring(store.keys, secret_for("keys", secret.encode()), clock=SystemClock(), ids=RandomIds())
        _, token = await ring.create(name, KeyGrant(apis=("chat",)))
        if revoked:
            await ring.revoke(name)
        await store.close()
        return token.text

    return asyncio.run(make())


def test_why_a_key_is_refused_is_told_to_who_has_the_journal(tmp_path: Path) -> None:
    """No key of ours, not in this journal, made under another secret, revoked; and what a good one may do."""
    good, stale = make_key(tmp_path, "good"), make_key(tmp_path, "stale", secret=OTHER)
    gone = make_key(tmp_path, "gone", revoked=True)
    unknown = "tr_" + "0" * 16 + "_" + "0" * 64
    env = {"TREADLE_SECRET": SECRET}
    expected = {
        "sk-foreign": "does not have the form",
        "": "does not have the form",
        unknown: "no such key",
        stale: "made under another secret",
        gone: "was revoked",
    }
    for key, detail in expected.items():
        found = check_client_key(exposed(tmp_path), key, env)
        assert (found.state, detail in found.detail, bool(found.advice)) == ("broken", True, True), found
        assert not key or key not in repr(found)
    found = check_client_key(exposed(tmp_path), good, env)
    assert (found.state, "apis chat" in found.detail) == ("ok", True)


def test_a_key_can_be_tried_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--key-env` names it, as everywhere; the key itself is never shown."""
    key = make_key(tmp_path, "stale", secret=OTHER)
    monkeypatch.setenv("CLIENT_KEY", key)
    monkeypatch.setenv("TREADLE_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--store", f"sqlite:///{tmp_path}/j.db", "--key-env", "CLIENT_KEY", "--offline"]) == 1
    shown = capsys.readouterr().out
    assert "✗ key " in shown
    assert key not in shown


def test_a_folder_of_data_that_can_not_be_written_is_worth_knowing(tmp_path: Path) -> None:
    """A file in its place is as bad as a right that is missing."""
    assert check_data({"XDG_DATA_HOME": str(tmp_path)}).state == "ok"
    (tmp_path / "file").touch()
    found = check_data({"XDG_DATA_HOME": str(tmp_path / "file")})
    assert (found.state, "XDG_DATA_HOME" in found.advice) == ("note", True)


async def test_an_operator_reads_in_the_log_why_a_key_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a key: the stranger is not told that it exists."""
    monkeypatch.setattr(logging.getLogger("treadle.access"), "handlers", [caplog.handler])
    key = await asyncio.to_thread(make_key, tmp_path, "stale", secret=OTHER)
    store = open_store(f"{tmp_path}/j.db")
    await store.open()
    ring = Keyring(store.keys, secret_for("keys", SECRET.encode()), clock=SystemClock(), ids=RandomIds())
    messages: list[str] = []
    for _ in range(3):
        try:
            await ring.check(key)
        except TreadleError as error:
            messages.append(error.message)
    await store.close()
    assert messages == ["The key is not one of this server's."] * 3
    told = {id(record): record.getMessage() for record in caplog.records if "TREADLE_SECRET" in record.getMessage()}
    assert len(told) == 1
    assert key not in str(told)
