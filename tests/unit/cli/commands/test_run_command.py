"""`treadle run`: what is asked, from arguments and from a pipe."""

import shlex
import sys
from pathlib import Path

import pytest

from treadle.cli.commands import run_command as run
from treadle.cli.main import main
from treadle.core.tool_definitions import AUTO
from treadle.providers.demo_model.tool_selection import choose
from treadle.tools.demo_tools import DEMO_TOOLS
from treadle.tools.local import local_tools


def examples() -> list[list[str]]:
    """Return the examples of the help that name no model."""
    lines = [line.strip() for line in run.EPILOG.split("examples:\n")[1].split("\n\n")[0].splitlines()]
    return [shlex.split(line) for line in lines if "MODEL" not in line and "." not in line and " -c " not in line]


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_the_examples_of_the_help_do_something_on_the_demo_model(words: list[str], tmp_path: Path) -> None:
    """A newcomer tries them first, without a key: each calls a tool."""
    specs = tuple(each.spec for each in (*DEMO_TOOLS, *local_tools(tmp_path)))
    prompt = next(word for word in words if " " in word)
    assert len(choose(prompt, specs, AUTO).calls) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "nothing to ask"),
        (["run", "  "], "nothing to ask"),
        (["run", "what", "is", "this"], "the prompt is more than one word"),
        (["-p", "look", "gone.txt"], "gone.txt can not be read: No such file or directory"),
    ],
)
def test_a_missing_prompt_or_file_is_a_usage_error(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Code 2 and a word about what to do."""
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"treadle: {message}\n  hint: ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--ephemeral", "-c"], "--ephemeral keeps nothing"),
        (["--ephemeral", "--server", "http://127.0.0.1:1"], "--ephemeral is for this process"),
        (["--schema", "gone.json"], "gone.json can not be read"),
        (["--server", "ftp://x"], "'ftp://x' is no address of a server"),
        (["--server", "http://127.0.0.1:1", "--key-env", "NOT_SET_HERE"], "the variable NOT_SET_HERE is not set"),
    ],
)
def test_flags_that_can_not_be_followed_are_usage_errors(
    flags: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Before anything is asked."""
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "hi", *flags]) == 2
    assert message in capsys.readouterr().err
