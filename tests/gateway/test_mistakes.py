"""Everything a newcomer gets wrong is said in two lines, what happened and what to do; the doctor finds it first."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.mistakes import MISTAKES, Mistake
from treadle.cli.doctor.check_result import Check
from treadle.cli.main import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty folder, with nothing on standard input; what a command does to the log is undone."""
    logger = logging.getLogger("treadle")
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    level = logger.level
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_UPSTREAMS__RETRIES", "0")
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield tmp_path
    logger.setLevel(level)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.name)
def test_a_mistake_is_two_lines_and_a_code(
    mistake: Mistake, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What happened, then what to do; no traceback, nothing on standard output."""
    with mistake.setting(here, monkeypatch):
        code = main(mistake.line.split())
    shown = capfd.readouterr()
    lines = [line for line in shown.err.splitlines() if line]
    assert (code, shown.out) == (mistake.code, ""), shown.err
    assert lines[0].startswith("treadle: "), shown.err
    hint = next((number for number, line in enumerate(lines) if line.startswith("  hint: ")), len(lines))
    assert mistake.what in "\n".join(lines[:hint]), shown.err
    assert mistake.way_out in "\n".join(lines[hint:]), shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("mistake", [each for each in MISTAKES if each.doctor], ids=lambda each: each.name)
def test_the_doctor_finds_it_first(
    mistake: Mistake, here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the same settings, before anything is started; each finding has its advice."""
    sandbox = Check(name="sandbox", state="ok", detail="tried elsewhere")
    monkeypatch.setattr("treadle.cli.doctor.check_list.check_sandbox", lambda: sandbox)
    monkeypatch.setattr("treadle.cli.doctor.check_list.check_read_only", lambda: sandbox)
    with mistake.setting(here, monkeypatch):
        code = main(["doctor", "--json", *mistake.flags.split()])
    found = msgspec.json.decode(capfd.readouterr().out)
    name, _, detail = mistake.doctor.partition(": ")
    [check] = [each for each in found["checks"] if each["name"] == name]
    assert check["state"] in ("broken", "note"), found
    assert detail in check["detail"]
    assert check["advice"]
    assert code == (0 if found["ok"] else 1)
