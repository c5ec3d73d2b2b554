"""`treadle trust`, and the question at a terminal: what a file would do is seen, and only a yes lets it in."""

import io
import os
import sys
from pathlib import Path

import msgspec
import pytest

from treadle.cli import trust_question as question
from treadle.cli.main import main
from treadle.config.loader import data_directory
from treadle.config.trusted_files import Doubt, Trust

HARM = 'default_model = "demo"\n[[mcp]]\nname = "m"\ncommand = ["sh", "-c", "a\\nb\\u202e"]\n'
LINE = "  start the program `sh -c 'a⏎b<U+202E>'` (the MCP server m)"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a repository with a file that starts a program."""
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = tmp_path / "repository" / "treadle.toml"
    file.write_text(HARM, encoding="utf-8")
    return file


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> "list[str]":
    """Be a person at a terminal who gives these answers, first one first."""
    answers: list[str] = []

    class Keys(io.StringIO):
        def readline(self, size: int | None = -1) -> str:
            return answers.pop(0)

    monkeypatch.setattr(sys, "stdin", Keys())
    monkeypatch.setattr(question, "_can_ask", lambda: True)
    return answers


def test_show_says_what_it_would_do_and_agrees_to_nothing(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    """Exit code 1 while it is not trusted; nothing in it can hide from the eye."""
    assert main(["trust", "--show"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{file} was found here, and has not been used before. It would"
    assert shown[1:] == [LINE, "  set also default_model"]
    assert not data_directory(os.environ).exists()


def test_a_file_is_trusted_shown_changed_and_forgotten(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    """Each state is said, to people and to programs."""
    assert main(["trust"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [f"{file} is trusted. It may", LINE]
    assert main(["trust", "--show"]) == 0
    assert main(["models"]) == 0
    capsys.readouterr()
    file.write_text(HARM + "\n", encoding="utf-8")
    assert main(["models"]) == 2
    assert "has changed since it was trusted" in capsys.readouterr().err
    assert main(["trust", "--show", "--json"]) == 1
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert (shown["path"], shown["state"], len(shown["would"])) == (str(file), "changed", 2)
    assert main(["trust", "--list", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out) == {"files": [{"path": str(file), "state": "changed"}]}
    file.unlink()
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == f"{file}  gone\n"
    assert main(["trust", "--revoke"]) == 0
    assert main(["trust", "--revoke"]) == 1
    assert f"{file} was not trusted" in capsys.readouterr().err
    assert main(["trust", "--list"]) == 0
    assert capsys.readouterr().out == "no file is trusted\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "No such file"), ("[server\n", "is not TOML"), ("[limts]\n", "did you mean limits?")],
)
def test_a_file_that_cannot_be_read_is_not_agreed_to(
    capsys: pytest.CaptureFixture[str], file: Path, text: str | None, words: str
) -> None:
    """Nobody can say what it would do."""
    file.unlink() if text is None else file.write_text(text, encoding="utf-8")
    assert main(["trust"]) == 2
    assert words in capsys.readouterr().err
    assert Trust(data_directory(os.environ)).files() == {}


def test_without_a_terminal_a_found_file_is_refused(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    """With code 2, and what to do; named, the same file is used."""
    assert main(["models"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"treadle: {file} is not trusted: it was found in this folder")
    assert "`treadle trust --show` says what it would do" in told.err
    assert main(["models", "--config", "treadle.toml"]) == 0


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_a_person_is_asked_once(terminal: list[str], capsys: pytest.CaptureFixture[str], answer: str) -> None:
    """What it would do stands above the question; a yes is remembered."""
    terminal.append(answer)
    assert main(["models"]) == 0
    told = capsys.readouterr()
    assert told.out == "demo\n"
    assert told.err.splitlines()[1:] == [LINE, "  set also default_model", "Use it? [y/N] "]
    assert main(["models"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("answer", ["\n", "n\n", "", "yeah\n"])
def test_everything_but_a_yes_is_a_no(terminal: list[str], capsys: pytest.CaptureFixture[str], answer: str) -> None:
    """An empty line and the end of the input too; nothing is remembered."""
    terminal.append(answer)
    assert main(["models"]) == 2
    assert "is not trusted" in capsys.readouterr().err
    assert Trust(data_directory(os.environ)).files() == {}


def test_a_file_that_changes_under_the_question_is_not_used(
    terminal: list[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    """What was agreed to is what was shown."""
    real = question.remember

    def change(doubt: Doubt) -> None:
        file.write_text(HARM.replace("sh", "evil"), encoding="utf-8")
        real(doubt)

    monkeypatch.setattr(question, "remember", change)
    terminal.append("y\n")
    assert main(["models"]) == 2


def test_a_long_question_is_cut_and_says_so(
    terminal: list[str], capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    """What matters cannot be pushed out of sight by many lines or a long one."""
    rows = [f'[[mcp]]\nname = "m{number}"\ncommand = ["{"x" * 1_000}"]\n' for number in range(100)]
    file.write_text("".join(rows), encoding="utf-8")
    terminal.append("n\n")
    assert main(["models"]) == 2
    shown = capsys.readouterr().err.partition("Use it?")[0].splitlines()
    assert len(shown) == question.LINES_MAX + 1
    assert max(map(len, shown)) < question.LINE_CHARS_MAX + 40
    assert "61 lines more: `treadle trust --show`" in shown[-1]
    assert main(["trust", "--show"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 101


def test_an_answer_that_cannot_be_kept_is_an_error(
    terminal: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says how to go on without."""
    (tmp_path / "data").write_text("not a folder")
    terminal.append("y\n")
    assert main(["models"]) == 2
    told = capsys.readouterr().err
    assert "the answer can not be kept" in told
    assert "--config treadle.toml" in told


def test_the_doctor_tries_nothing_of_a_file_that_nobody_trusts(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    """It says so, and looks at the machine alone, also when the file has mistakes."""
    assert main(["doctor", "--json"]) == 1
    first, *others = msgspec.json.decode(capsys.readouterr().out)["checks"]
    assert (first["name"], first["state"]) == ("config", "broken")
    assert "is not trusted" in first["detail"]
    assert "treadle trust" in first["advice"]
    machine = ["python", "packages", "kernel", "sandbox", "readonly", "isolated", "guarantees", "files"]
    assert [check["name"] for check in others] == machine
    file.write_text(HARM + "[limts]\nx = 1\n", encoding="utf-8")
    assert main(["doctor", "--json"]) == 1
    assert [each["name"] for each in msgspec.json.decode(capsys.readouterr().out)["checks"]] == ["config", *machine]
