"""The entry point: which command is meant, what is imported for it, and how errors leave."""

import errno
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.cli import command_base as command
from treadle.cli import main
from treadle.core.errors import ConfigError, NotApproved, NotFound, UpstreamTimeout

HEAVY = ("prompt_toolkit", "rich", "aiohttp", "uvicorn", "apsw", "treadle.runtime", "treadle.server", "treadle.config")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([], ["chat"]),
        (["-m", "x"], ["chat", "-m", "x"]),
        (["--config", "f"], ["--config", "f", "chat"]),
        (["--config=f", "-p", "hi"], ["--config=f", "run", "-p", "hi"]),
        (["--config", "f", "run", "hi"], ["--config", "f", "run", "hi"]),
        (["--config"], ["--config", "chat"]),
        (["-p", "hi"], ["run", "-p", "hi"]),
        (["-phi"], ["run", "-phi"]),
        (["-m", "x", "--prompt=hi"], ["run", "-m", "x", "--prompt=hi"]),
        (["run", "hi"], ["run", "hi"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
    ],
)
def test_the_command_may_be_left_out(given: list[str], meant: list[str]) -> None:
    """Nothing means chat, a prompt means run."""
    assert main.name_command(given) == meant


@pytest.mark.parametrize("entry", main.COMMANDS, ids=lambda entry: entry.name)
def test_every_command_has_help_with_an_example(entry: main.CommandEntry, capsys: pytest.CaptureFixture[str]) -> None:
    """A newcomer sees what a command is for and how it is used."""
    with pytest.raises(SystemExit) as caught:
        main.main([entry.name, "--help"])
    shown = capsys.readouterr().out
    assert caught.value.code == 0
    assert shown.startswith(f"usage: treadle {entry.name}")
    assert "examples:\n" in shown
    assert "treadle" in shown.split("examples:\n")[1]


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is the help."""
    with pytest.raises(SystemExit):
        main.main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"{entry.name} " in shown and entry.summary in shown for entry in main.COMMANDS)


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a command line imports in a fresh interpreter."""
    program = (
        "import sys\nfrom treadle.cli.main import main\n"
        f"try: main({list(arguments)!r})\nexcept SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("chat", "--help"), ("serve", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Help is instant because neither a screen, nor a server, nor a database is imported for it."""
    assert not imported_by(*arguments) & set(HEAVY)


def test_a_wrong_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown word ends with code 2 and the list of what there is."""
    with pytest.raises(SystemExit) as caught:
        main.main(["frobnicate"])
    assert caught.value.code == 2
    assert "serve" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """--version says which Treadle this is."""
    from importlib.metadata import version

    with pytest.raises(SystemExit):
        main.main(["--version"])
    assert capsys.readouterr().out == f"treadle {version('treadle')}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a.b: bad", hint="do this"), 2),
        (NotFound("no model", param="model"), 2),
        (NotFound("no run"), 1),
        (UpstreamTimeout("gone"), 1),
        (NotApproved("no"), 3),
    ],
)
def test_an_error_is_one_line_a_hint_and_a_code(
    error: ConfigError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback: the message, the way out, and a number that a script can test."""

    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr("treadle.cli.commands.config_command.run", fail)
    assert main.main(["config", "show"]) == code
    hint = f"  hint: {error.hint}\n" if error.hint else ""
    assert capsys.readouterr().err == f"treadle: {error.message}\n{hint}"


def test_a_file_may_be_named_before_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--config` works in front of the command and behind it; behind it wins."""
    for port in (9001, 9002):
        (tmp_path / f"{port}.toml").write_text(f"[server]\nport = {port}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shown: list[str] = []
    for arguments in (["config", "show"], ["config", "show", "--config", "9002.toml"]):
        assert main.main(["--config", "9001.toml", *arguments]) == 0
        shown += [line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith("server.port")]
    assert shown == ["9001", "9002"]
    assert main.main(["--config", "9001.toml", "config", "check"]) == 0
    assert capsys.readouterr().out == "9001.toml: no mistakes\n"


def test_a_prompt_without_quotes_is_shown_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The commonest slip at a shell; a flag that does not exist is another mistake."""
    assert main.main(["run", "what", "is", "it?"]) == 2
    hint = "  hint: quote it: treadle run 'what is it?'\n"
    assert capsys.readouterr().err == f"treadle: the prompt is more than one word\n{hint}"
    with pytest.raises(SystemExit):
        main.main(["--config"])
    assert "usage: treadle" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main.main(["run", "hi", "--frobnicate"])
    assert "unrecognized arguments: --frobnicate" in capsys.readouterr().err


def test_output_that_can_not_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk is an error with a name, not a traceback."""

    def fail(args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("treadle.cli.commands.config_command.run", fail)
    assert main.main(["config", "show"]) == 1
    assert capsys.readouterr().err == "treadle: the output can not be written: No space left on device\n"


def test_an_interrupt_has_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before anything could catch it is still 130."""

    def fail(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("treadle.cli.commands.config_command.run", fail)
    assert main.main(["config", "show"]) == command.CANCELLED


@pytest.mark.parametrize(
    ("closed", "expected"), [("<&-", "ok\n"), (">&-", ""), ("2>&-", "ok\n"), ("<&- >&- 2>&-", ""), ("", "ok\n")]
)
def test_streams_that_were_closed_are_stood_in_for(closed: str, expected: str) -> None:
    """No traceback, and no file of ours gets the number of a stream that others write to."""
    program = (
        "import os, sys\nfrom treadle.cli import main\n"
        "main.load = lambda name: type('C', (), {'run': lambda self, args: print('ok') or os.open('.', 0) - 3, "
        "'describe': lambda self, parser: None})()\n"
        "sys.exit(main.main(['doctor']))"
    )
    command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode >= 0, done.stdout, done.stderr) == (True, expected, "")
