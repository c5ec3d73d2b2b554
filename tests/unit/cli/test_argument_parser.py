"""Mistakes on the command line: what is wrong, what was probably meant, and the code for usage."""

import runpy
import sys
from pathlib import Path

import pytest

import treadle.cli
from treadle.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["serv"], "invalid choice: 'serv'", "did you mean serve? `treadle --help`"),
        (["keys", "creat", "x"], "invalid choice: 'creat'", "did you mean create? `treadle keys --help`"),
        (["run", "hi", "--modle", "x"], "unrecognized arguments: --modle x", "did you mean --model? `treadle run"),
        (["serve", "--prot=1"], "unrecognized arguments: --prot=1", "did you mean --port? `treadle serve"),
        (["serve", "--port", "http"], "argument --port: invalid int value: 'http'", "`treadle serve --help` lists"),
        (["run", "--output", "jsn"], "invalid choice: 'jsn'", "did you mean json? `treadle run"),
        (["keys", "create"], "the following arguments are required: NAME", "`treadle keys create --help` lists"),
        (
            ["run", "--max-turns", "x", "hi"],
            "--max-turns: must be a whole number of at least 1, not 'x'",
            "`treadle run",
        ),
        (["run", "--timeout", "nan", "hi"], "--timeout: must be a number above 0, not 'nan'", "`treadle run --help`"),
        (["--plain", "models"], "unrecognized arguments: models", "did you mean treadle models …? `treadle chat"),
        (["xyzzy"], "invalid choice: 'xyzzy'", "  hint: `treadle --help` lists what there is"),
    ],
)
def test_a_mistake_is_said_with_what_was_meant(
    arguments: list[str], what: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage of the command that was meant, the mistake, and the way out."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    shown = capsys.readouterr()
    assert (caught.value.code, shown.out) == (2, "")
    assert shown.err.startswith("usage: treadle")
    assert what in shown.err
    assert hint in shown.err.splitlines()[-1]


def test_an_old_python_is_told_so_before_anything_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines and a code, in place of a traceback about a name that it does not know."""
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(Path(treadle.cli.__file__)))
    assert caught.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "treadle: this is Python 3.9.2, and Treadle needs 3.11 or newer"
    assert second.startswith("  hint: ")
