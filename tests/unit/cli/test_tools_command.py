"""`treadle tools`: what is listed, what is warned of."""

from pathlib import Path

import msgspec
import pytest

from treadle.cli.main import main

TOOLS = '''
from treadle import tool

@tool(effect="destructive", timeout_s=3)
def wipe(path: str) -> str:
    """Remove a thing.

    For good.
    """
    return path

@tool(name="odd.name", effect="read")
def odd() -> str:
    return ""
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a file of tools."""
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ENABLE_TOOLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TOOLS, encoding="utf-8")
    return tmp_path


def test_the_list_shows_the_policy_of_each_tool(capsys: pytest.CaptureFixture[str]) -> None:
    """Effect, approval, timeout, source and the first line about it."""
    assert main(["tools", "--tools", "mine.py"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["name", "effect", "approval", "timeout", "source"]
    wipe = next(row for row in rows if row.startswith("wipe"))
    assert wipe.split()[:5] == ["wipe", "destructive", "needed", "3", "s"]
    assert wipe.endswith("Remove a thing.")


def test_the_list_is_data_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """--json has the schema too."""
    assert main(["tools", "--tools", "mine.py", "--json"]) == 0
    rows = {row["name"]: row for row in msgspec.json.decode(capsys.readouterr().out)}
    assert rows["wipe"]["needs_approval"] is True
    assert rows["wipe"]["timeout_s"] == 3.0
    assert rows["wipe"]["parameters"]["properties"].keys() == {"path"}


def test_lint_warns_of_what_a_provider_can_not_take(capsys: pytest.CaptureFixture[str]) -> None:
    """Code 1 when there is a warning, each named with its tool."""
    assert main(["tools", "lint", "--tools", "mine.py"]) == 1
    shown = capsys.readouterr().out
    assert "odd.name: name: " in shown
    assert "odd.name: description: empty" in shown


def test_lint_counts_in_whole_words(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """One tool is one tool."""
    (here / "one.py").write_text('from treadle import tool\n@tool\ndef f() -> int:\n    """Do."""\n', encoding="utf-8")
    assert main(["tools", "lint", "--tools", "one.py"]) == 0
    assert capsys.readouterr().out == "1 tool, 0 warnings\n"


def test_no_tools_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """ENABLE_TOOLS=false leaves an empty list, with a word about it."""
    monkeypatch.setenv("ENABLE_TOOLS", "false")
    assert main(["tools"]) == 0
    assert capsys.readouterr().out.startswith("no tools")


def test_a_file_that_does_not_load_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Code 2 and the reason, no traceback."""
    assert main(["tools", "--tools", "missing.py"]) == 2
    assert capsys.readouterr().err.startswith("treadle: cannot load tools from missing.py")
