"""`treadle dialects`: the list, and what would become of a text."""

import json
from pathlib import Path

import pytest

from treadle.cli.main import main
from treadle.protocols.text_calls.dialect_table import DIALECTS

TOOLS = '[{"type": "function", "function": {"name": "ring_bell", "parameters": {"properties": {}}}}]'
CALL = '<tool_call>{"name": "ring_bell", "arguments": {}}</tool_call>'


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Return a file of tools."""
    path = tmp_path / "tools.json"
    path.write_text(TOOLS, encoding="utf-8")
    return path


def test_every_dialect_is_listed_with_its_form(capsys: pytest.CaptureFixture[str]) -> None:
    """One entry each, its tier for the model that was named."""
    assert main(["dialects", "--json", "--model", "qwen3-coder"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == [dialect.id for dialect in DIALECTS]
    assert {row["id"]: row["tier"] for row in rows}["qwen3_coder"] == "native"
    assert all("NAME" in row["form"] for row in rows)
    assert main(["dialects"]) == 0
    assert f"{len(DIALECTS)} dialects" in capsys.readouterr().out


def test_a_text_is_tried(capsys: pytest.CaptureFixture[str], tools: Path, tmp_path: Path) -> None:
    """What would be recovered, what stays, and why not the rest."""
    text = tmp_path / "answer.txt"
    text.write_text(f"Go. {CALL} but not `{CALL}` nor <tool_call>fly</tool_call>", encoding="utf-8")
    assert main(["dialects", "try", str(text), "--tools", str(tools)]) == 0
    out = capsys.readouterr().out
    assert "hermes_json (marked): ring_bell {}" in out
    assert "stands in inline code" in out
    assert "names no registered tool" in out
    assert main(["dialects", "try", str(text), "--tools", str(tools), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [call["raw"] for call in found["calls"]] == [CALL]
    assert found["content"].startswith("Go. ")


def test_markerless_dialects_are_tried_when_asked(
    capsys: pytest.CaptureFixture[str], tools: Path, tmp_path: Path
) -> None:
    """As in the configuration."""
    text = tmp_path / "answer.txt"
    text.write_text('{"name": "ring_bell", "arguments": {}}', encoding="utf-8")
    for tiers, count in (("native,marked", 0), ("markerless", 1), ("all", 1)):
        assert main(["dialects", "try", str(text), "--tools", str(tools), "--tiers", tiers, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["calls"]) == count


@pytest.mark.parametrize(
    ("content", "said"),
    [("nonsense", "not JSON"), ("3", "no list of tools"), ('[{"function": {}}]', "tool 0 has no name")],
)
def test_bad_tools_are_named(
    capsys: pytest.CaptureFixture[str], tools: Path, tmp_path: Path, content: str, said: str
) -> None:
    """The file and what is wrong with it."""
    tools.write_text(content, encoding="utf-8")
    (tmp_path / "answer.txt").write_text("x", encoding="utf-8")
    assert main(["dialects", "try", str(tmp_path / "answer.txt"), "--tools", str(tools)]) == 2
    assert said in capsys.readouterr().err


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str], tools: Path, tmp_path: Path) -> None:
    """A file that is not there, no file at all, and a tier that is none."""
    assert main(["dialects", "try"]) == 2
    assert main(["dialects", "try", str(tmp_path / "gone.txt"), "--tools", str(tools)]) == 1
    (tmp_path / "answer.txt").write_text("x", encoding="utf-8")
    assert main(["dialects", "try", str(tmp_path / "answer.txt"), "--tools", str(tools), "--tiers", "x"]) == 2
    assert "names no tier" in capsys.readouterr().err
