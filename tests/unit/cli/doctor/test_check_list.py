"""The checks of the doctor: each finds what it is for, changes nothing, and never shows a key."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import apsw
import msgspec
import pytest

from treadle.cli.doctor import check_list as checks
from treadle.cli.doctor.check_list import Check, check_packages, check_port, check_python, check_store
from treadle.cli.main import main
from treadle.config import ServerSection, Settings, StoreSection, ToolsSection, Upstream

KEY = "sk-secret-0123456789abcdef"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """Serve an upstream that wants the right key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            right = self.path == "/v1/models" and self.headers["authorization"] == f"Bearer {KEY}"
            self.send_response(200 if right else 401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Upstream(name="up", base_url=f"http://127.0.0.1:{server.server_port}/v1", key_env="UP_KEY")
    server.shutdown()
    thread.join()
    server.server_close()


def state(upstream: Upstream, env: dict[str, str], *, is_offline: bool = False) -> Check:
    """Check one upstream."""
    asking = "none" if is_offline else "all"
    return checks.check_upstreams(Settings(upstream=(upstream,)), env, asking=asking)[0]


def test_an_upstream_that_answers_is_well(upstream: Upstream) -> None:
    """It is asked with its key, which is not shown."""
    assert state(upstream, {"UP_KEY": KEY}) == Check(
        name="upstream up", state="ok", detail=f"{upstream.base_url} answers, UP_KEY is set"
    )


def test_a_refused_key_is_broken(upstream: Upstream) -> None:
    """The variable is named, not its value."""
    found = state(upstream, {"UP_KEY": "sk-wrong-value-0123456789"})
    assert (found.state, found.advice) == ("broken", "the key in UP_KEY is refused")
    assert "wrong-value" not in repr(found)


def test_an_unset_key_is_broken_without_asking(upstream: Upstream) -> None:
    """What can not work is not tried."""
    assert state(upstream, {}) == Check(
        name="upstream up", state="broken", detail="UP_KEY is unset", advice="export UP_KEY=…"
    )


def test_offline_asks_nobody() -> None:
    """A dead address is not noticed, because it is not asked."""
    dead = Upstream(name="up", base_url="http://127.0.0.1:9/v1")
    assert state(dead, {}, is_offline=True).state == "note"


def test_an_upstream_that_is_not_there_is_broken() -> None:
    """The reason is said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = state(Upstream(name="up", base_url=f"http://127.0.0.1:{probe.getsockname()[1]}/v1"), {})
    assert found.state == "broken"
    assert "refused" in found.detail


def test_an_upstream_by_its_address_alone_is_told_from_one_that_forgot_its_key() -> None:
    """The variable that would hold a key is named, where there is one."""
    address = "http://127.0.0.1:9/v1"
    openai, mine = (Upstream(name=name, base_url=address) for name in ("openai", "mine"))
    found = [state(each, {}, is_offline=True).detail for each in (openai, mine)]
    assert found == [
        f"{address}, without a key (OPENAI_API_KEY is unset), not asked",
        f"{address}, without a key, not asked",
    ]
    assert state(openai, {"OPENAI_API_KEY": KEY}, is_offline=True).detail == f"{address}, without a key, not asked"


def test_without_an_upstream_the_demo_answers() -> None:
    """That is no defect."""
    assert [check.state for check in checks.check_upstreams(Settings(), {})] == ["note"]


def store(path: Path, persistence: str = "on") -> Check:
    """Check a store at a path."""
    section = msgspec.convert({"url": f"sqlite:///{path}", "persistence": persistence}, StoreSection)
    return check_store(Settings(store=section))


def test_a_store_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    """Looking leaves no file behind."""
    assert store(tmp_path / "a" / "b.db").state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_something_else_is_broken(tmp_path: Path) -> None:
    """A file of another kind, and a folder, can not be the journal."""
    (tmp_path / "x.db").write_text("a diary, not a journal", encoding="utf-8")
    assert "x.db: it is not a SQLite database" in store(tmp_path / "x.db").detail
    assert store(tmp_path).state == "broken"
    assert store(tmp_path / "x.db", "off").state == "note"


def test_an_empty_file_and_a_database_are_fine(tmp_path: Path) -> None:
    """SQLite makes a database of an empty file."""
    (tmp_path / "empty.db").touch()
    apsw.Connection(str(tmp_path / "full.db")).execute("PRAGMA user_version = 0; VACUUM")
    assert [store(tmp_path / name).state for name in ("empty.db", "full.db")] == ["ok", "ok"]


def test_a_folder_that_can_not_be_written_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is whether something can be made in the nearest folder that exists, not what permissions say."""
    asked: list[Path] = []

    def deny(*, dir: Path) -> None:
        asked.append(dir)
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", deny)
    found = store(tmp_path / "a" / "b.db")
    assert (found.state, asked) == ("broken", [tmp_path])
    assert found.detail == f"{tmp_path}/a/b.db can not be written: {tmp_path}: Read-only file system"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_place_where_nothing_can_be_made_is_broken() -> None:
    """Also for root, who may write everywhere."""
    assert store(Path("/proc/nope/treadle.db")).state == "broken"


def test_a_file_that_may_not_be_written_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that can be written does not help a file that can not."""
    (tmp_path / "x.db").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert store(tmp_path / "x.db").detail.endswith("x.db can not be written: Permission denied")


def test_a_taken_port_is_worth_knowing() -> None:
    """Perhaps Treadle runs already."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = check_port(Settings(server=ServerSection(port=taken.getsockname()[1])))
    assert found.state == "note"
    assert check_port(Settings(server=ServerSection(port=0))).state == "ok"


def test_this_machine_can_run_treadle() -> None:
    """The interpreter and the packages of the tests themselves are enough."""
    assert [check_python().state, check_packages().state] == ["ok", "ok"]


def test_tools_that_do_not_load_are_broken(tmp_path: Path) -> None:
    """The error of the file is said, not thrown."""
    settings = Settings(tools=ToolsSection(load=(str(tmp_path / "no.py"),)))
    assert checks.check_tools(settings).state == "broken"
    assert checks.check_tools(Settings(tools=ToolsSection(enabled=False))).state == "note"


@pytest.fixture
def clean_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with an empty environment."""
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "ENABLE_TOOLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_doctor_passes_a_fresh_machine(clean_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every check is there, and nothing is broken."""
    assert main(["doctor", "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["ok"] is True
    names = [check["name"] for check in found["checks"]]
    machine = ["python", "packages", "kernel", "sandbox", "readonly", "isolated", "guarantees", "files"]
    gateway = ["routes", "tools", "port", "hosts", "keys"]
    assert names == ["config", *machine, "extras", "data", "store", "upstream", *gateway]


def test_the_doctor_fails_on_a_broken_configuration(clean_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 1; the mistakes stand in the report, and one of them does not hide what else is wrong."""
    (clean_machine / "treadle.toml").write_text("[limts]\nx = 1\n", encoding="utf-8")
    assert main(["doctor", "--config", "treadle.toml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "✗ config      treadle.toml:2: limts: unknown key; did you mean limits?"
    assert lines[1].strip().startswith("→ `treadle config example`")
    named = [line.split()[1] for line in lines if not line.startswith(" ")]
    assert named[:2] == ["config", "python"]
    assert {"store", "upstream", "tools", "port", "keys"} <= set(named)


def test_a_file_that_is_no_toml_leaves_the_machine(clean_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is known of the settings then, and nothing is guessed."""
    (clean_machine / "treadle.toml").write_text("[server\n", encoding="utf-8")
    assert main(["doctor", "--json"]) == 1
    found = msgspec.json.decode(capsys.readouterr().out)["checks"]
    names = ["config", "python", "packages", "kernel", "sandbox", "readonly", "isolated", "guarantees", "files"]
    assert [check["name"] for check in found] == names
    assert "is not TOML" in found[0]["detail"]
    assert "treadle config example" in found[0]["advice"]


def test_a_report_on_a_terminal_fits_into_it(
    clean_machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long lines are broken between words, below where they began; a pipe gets them whole."""
    monkeypatch.setenv("COLUMNS", "100")
    main(["doctor", "--offline"])
    piped = capsys.readouterr().out
    assert max(map(len, piped.splitlines())) > 100
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main(["doctor", "--offline"])
    shown = capsys.readouterr().out
    # A word that is longer than the line, such as the path of a test's folder, is not broken.
    assert [line for line in shown.splitlines() if len(line) > 100 and max(map(len, line.split())) < 60] == []
    assert shown.split() == piped.split()
