"""`treadle login`: a link that the running server takes, or a word on why there can be none."""

import json
from pathlib import Path

import pytest

from treadle.cli.main import main
from treadle.config import Settings, StoreSection
from treadle.server.auth.installation_secret import read_secret, secret_for
from treadle.server.auth.signed_tickets import Tickets


def _config(folder: Path, text: str) -> list[str]:
    path = folder / "treadle.toml"
    path.write_text(text, encoding="utf-8")
    return ["login", "--config", str(path), "--store", f"sqlite:///{folder}/treadle.db"]


def test_the_link_is_good_at_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is signed with the secret beside the journal, with the scope and the name that were asked for."""
    arguments = _config(tmp_path, '[server]\nlogin = "always"\nport = 9001\n')
    assert main([*arguments, "--scope", "viewer", "--name", "ada", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    url, _, ticket = printed["url"].partition("#")
    assert (url, printed["scope"]) == ("http://127.0.0.1:9001/login", "viewer")
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path}/treadle.db"))
    made = Tickets(secret_for("login", read_secret(settings)), started_at=0.0).redeem(ticket, 0.0, 60.0)
    assert made is not None
    assert (made[1].name, made[1].scope) == ("ada", "viewer")


def test_the_address_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind a proxy the server does not know its own name."""
    arguments = _config(tmp_path, '[server]\nlogin = "always"\n')
    assert main([*arguments, "--url", "https://treadle.example.org/"]) == 0
    assert capsys.readouterr().out.startswith("https://treadle.example.org/login#")


def test_where_nobody_need_log_in_a_link_is_for_deciding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On loopback too."""
    assert main(_config(tmp_path, "")) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8700/login#")


def test_a_key_for_a_program_is_good_at_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alone on its line, for a shell to take."""
    assert main([*_config(tmp_path, ""), "--key", "--name", "ada", "--scope", "operator"]) == 0
    key = capsys.readouterr().out.removesuffix("\n")
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path}/treadle.db"))
    tickets = Tickets(secret_for("login", read_secret(settings)), started_at=0.0)
    holder = tickets.holder(key, 0.0)
    assert holder is not None
    assert (holder.name, holder.scope) == ("ada", "operator")
    assert tickets.holder(key, holder.expires_at) is None


def test_a_secret_that_nobody_shares_makes_no_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file beside the journal the server could not know the link."""
    monkeypatch.delenv("TREADLE_SECRET", raising=False)
    arguments = _config(tmp_path, '[server]\nlogin = "always"\n[store]\npersistence = "off"\n')
    assert main(arguments) == 2
    assert "TREADLE_SECRET" in capsys.readouterr().err


def test_the_port_of_the_server_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a server that was started with --port; where nothing names a port, the assumed one is pointed out."""
    arguments = _config(tmp_path, "")
    assert main([*arguments, "--port", "9002"]) == 0
    printed = capsys.readouterr()
    assert (printed.out.partition("#")[0], printed.err) == ("http://127.0.0.1:9002/login", "")
    assert main(arguments) == 0
    assert "port 8700 is assumed; name another with --port or --url" in capsys.readouterr().err
    for known in (_config(tmp_path, "[server]\nport = 8700\n"), [*arguments, "--url", "http://x:1"]):
        assert main(known) == 0
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["", "  "])
def test_a_login_needs_a_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A decision without a name would be nobody's; it is a mistake in the command, and nothing is printed."""
    for more in ([], ["--key"]):
        assert main([*_config(tmp_path, ""), "--name", name, *more]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "a login needs a name" in printed.err
