"""`treadle run`: what is asked, from arguments and from a pipe."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from treadle.canon.errors import LimitExceeded
from treadle.canon.tools import AUTO
from treadle.cli import run
from treadle.cli.main import main
from treadle.tools.demo import DEMO_TOOLS
from treadle.tools.local import local_tools
from treadle.upstream.demo.choice import choose


@pytest.mark.parametrize(
    ("prompt", "piped", "joined"),
    [
        ("ask", "", "ask"),
        (" ask ", " \n", "ask"),
        ("ask", "data\n", "ask\n\n<input>\ndata\n</input>"),
        (None, "data\n", "data"),
        ("", "", ""),
        (None, "", ""),
    ],
)
def test_piped_text_is_added_as_a_block(prompt: str | None, piped: str, joined: str) -> None:
    """Either part may be missing; the input is marked as input."""
    assert run.join_prompt(prompt, piped) == joined


def feed(monkeypatch: pytest.MonkeyPatch, file: Path, data: bytes) -> None:
    """Make a file the standard input."""
    file.write_bytes(data)
    monkeypatch.setattr(sys, "stdin", file.open(encoding="utf-8"))


def test_a_file_on_stdin_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are replaced, not fatal."""
    feed(monkeypatch, tmp_path / "in", b"a\xffb")
    with sys.stdin:
        assert run.read_piped() == "a\N{REPLACEMENT CHARACTER}b"


def test_stdin_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More than the bound is refused, naming it."""
    monkeypatch.setattr(run, "STDIN_BYTES_MAX", 3)
    feed(monkeypatch, tmp_path / "in", b"abcd")
    with sys.stdin, pytest.raises(LimitExceeded, match="larger than 3 bytes"):
        run.read_piped()


def test_dev_null_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job without input does not count as a pipe."""
    with open(os.devnull, encoding="utf-8") as source:
        monkeypatch.setattr(sys, "stdin", source)
        assert run.read_piped() == ""


def test_no_stdin_at_all_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process started with its standard input closed still runs."""
    monkeypatch.setattr(sys, "stdin", None)
    assert run.read_piped() == ""


def examples() -> list[list[str]]:
    """Return the examples of the help that name no model."""
    lines = [line.strip() for line in run.EPILOG.split("examples:\n")[1].split("\n\n")[0].splitlines()]
    return [shlex.split(line) for line in lines if "MODEL" not in line]


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
        (["run", "a", "-p", "b"], "there are two prompts"),
    ],
)
def test_a_missing_or_double_prompt_is_a_usage_error(
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
