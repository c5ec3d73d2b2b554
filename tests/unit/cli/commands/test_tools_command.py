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


RULES = """
[policy.read]
retries = 2

[[tools.rule]]
match = ["wipe"]
approval = "never"
output_bytes_max = 1024

[[tools.rule]]
match = ["odd.*"]
enabled = false
"""


def rows_of(shown: str) -> dict[str, list[str]]:
    """Return the fields that were shown: value and reason."""
    return {line.split("  ")[0]: line.split("  ", 1)[1].split(None, 1) for line in shown.splitlines() if "  " in line}


def test_show_says_how_a_tool_may_run_and_who_said_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every field with its value and its reason."""
    (here / "treadle.toml").write_text(RULES, encoding="utf-8")
    assert main(["tools", "show", "wipe", "--tools", "mine.py", "--config", "treadle.toml"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Remove a thing.\n")
    rows = rows_of(shown)
    assert rows["effect"] == ["destructive", "declared"]
    assert rows["approval"] == ["never", "[[tools.rule]] #1"]
    assert rows["output_bytes_max"] == ["1024", "[[tools.rule]] #1"]
    assert rows["timeout_s"] == ["3", "declared"]
    assert rows["retries"] == ["0", "default"]
    assert rows["sandbox"] == ["none", "in Treadle's own process, with the rights of its user"]


def test_show_knows_tools_that_are_off(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list does not have them; --json says the same for programs."""
    (here / "treadle.toml").write_text(RULES, encoding="utf-8")
    assert main(["tools", "show", "odd.name", "--tools", "mine.py", "--config", "treadle.toml", "--json"]) == 0
    row = msgspec.json.decode(capsys.readouterr().out)
    assert (row["enabled"], row["why"]["enabled"], row["policy"]["retries"]) == (False, "[[tools.rule]] #2", 2)
    assert row["why"]["retries"] == "[policy.read]"
    assert main(["tools", "--tools", "mine.py", "--config", "treadle.toml", "--json"]) == 0
    assert "odd.name" not in [each["name"] for each in msgspec.json.decode(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["show"], 2, "show wants the name of a tool"),
        (["show", "wip"], 1, "did you mean wipe?"),
        (["list", "wipe"], 2, "list takes no name"),
    ],
)
def test_a_name_that_is_wrong_or_missing_is_said(
    args: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to do instead."""
    assert main(["tools", *args, "--tools", "mine.py"]) == code
    assert words in capsys.readouterr().err


def test_what_a_repository_may_not_set_is_said_on_stderr(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer stays what a program reads."""
    (here / "mine.toml").write_text("", encoding="utf-8")
    (here / "treadle.toml").write_text('[tools]\nload = ["evil.py"]\n', encoding="utf-8")
    assert main(["tools", "--tools", "mine.py", "--config", "mine.toml", "--json"]) == 0
    told = capsys.readouterr()
    assert "treadle.toml:2: tools.load is not for a repository to set" in told.err
    assert len(msgspec.json.decode(told.out)) == 2
