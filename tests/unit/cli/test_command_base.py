"""What commands share: flags become settings, and the terminal's tools stay in the project."""

import argparse
from pathlib import Path

import pytest

from treadle.cli import command_base as command
from treadle.core.errors import NotFound, TreadleError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with an empty environment."""
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ENABLE_TOOLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parse(*arguments: str) -> argparse.Namespace:
    """Parse the flags of `treadle serve`."""
    from treadle.cli.commands import serve_command as serve

    parser = argparse.ArgumentParser()
    serve.describe(parser)
    return parser.parse_args(arguments)


def test_flags_set_their_keys() -> None:
    """Each flag of serve lands where the file would put it."""
    settings = command.read_flags(
        parse(
            *("--host", "localhost", "--port", "0", "--store", "sqlite:///x.db", "--tools", "a.py", "--tools", "b"),
            *("--model", "m", "--log-level", "debug"),
        )
    ).settings
    assert (settings.server.host, settings.server.port, settings.server.log_level) == ("localhost", 0, "debug")
    assert settings.store.url == "sqlite:///x.db"
    assert settings.tools.load == ("a.py", "b")
    assert settings.default_model == "m"


def test_flags_that_are_not_given_change_nothing(here: Path) -> None:
    """The file stays in force where no flag speaks."""
    (here / "treadle.toml").write_text("[server]\nport = 9001\nallow_remote = true\n", encoding="utf-8")
    server = command.read_flags(parse("--config", "treadle.toml")).settings.server
    assert (server.port, server.allow_remote) == (9001, True)


def test_a_remote_host_needs_its_flag() -> None:
    """--allow-remote is what makes --host 0.0.0.0 work."""
    assert command.read_flags(parse("--host", "0.0.0.0", "--allow-remote")).settings.server.host == "0.0.0.0"


def test_the_terminal_stays_inside_the_repository(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local tools get the top of the repository around the working directory, and the terminal's limits hold."""
    (here / ".git").mkdir()
    (here / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(here / "src" / "deep")
    settings = command.terminal_settings(parse())
    assert settings.tools.local.root == str(here)
    assert settings.tools.local.enabled == (
        *("glob", "file_read", "grep", "outline", "output_read"),
        *("file_write", "file_edit", "bash"),
    )
    assert settings.limits.max_iterations == 50


def test_a_root_that_was_configured_is_kept(here: Path) -> None:
    """What a person wrote is not widened to the repository."""
    (here / ".git").mkdir()
    (here / "treadle.toml").write_text('[tools.local]\nroot = "sub"\n', encoding="utf-8")
    assert command.terminal_settings(parse("--config", "treadle.toml")).tools.local.root == "sub"


def test_outside_a_repository_the_root_is_the_folder(here: Path) -> None:
    """Without a .git anywhere above, nothing above is opened up."""
    assert command.project_root(here) in (here, *here.parents)
    assert command.terminal_settings(parse()).tools.local.root == str(command.project_root(here))


def test_a_model_that_nobody_serves_is_a_mistake_of_usage() -> None:
    """As any flag that cannot be followed."""
    assert command.exit_code(NotFound("no upstream serves it", param="model")) == 2


def test_an_error_is_harmless_for_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A message may quote what a model or a file said."""
    assert command.report(TreadleError("bad \x1b[2J", hint="see\n\x9bthat")) == 1
    assert capsys.readouterr().err == "treadle: bad ␛[2J\n  hint: see\n  hint: <U+009B>that\n"


def test_a_policy_of_the_flags_counts_where_the_tools_are_made(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust by a flag takes the question away, so bash must be confined then."""
    chosen = command.terminal_settings(argparse.Namespace(policy="trust"))
    assert (chosen.terminal.policy, chosen.tools.local.allow_unconfined) == ("trust", False)
    asked = command.terminal_settings(argparse.Namespace(policy=None))
    assert (asked.terminal.policy, asked.tools.local.allow_unconfined) == ("ask", True)
