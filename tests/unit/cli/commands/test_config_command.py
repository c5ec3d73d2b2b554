"""`treadle config`: what is in force and why, an example that works, and a check that finds mistakes."""

from pathlib import Path

import msgspec
import pytest

from treadle.cli.main import main
from treadle.config.error_messages import ANY_HINT


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a known environment."""
    for name in ("OPENROUTER_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ENABLE_TOOLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-value-0123456789")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TREADLE_LIMITS__WALL_S", "5")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CONFIG", "treadle.toml")
    (tmp_path / "treadle.toml").write_text("\n[server]\nport = 9001\n", encoding="utf-8")
    return tmp_path


def test_show_tells_each_value_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """File with line, variable, default: each key says where it comes from; keys only whether they are set."""
    assert main(["config", "show", "--store", "sqlite:///x.db"]) == 0
    shown = capsys.readouterr().out
    lines = {line.split(" = ")[0]: line for line in shown.splitlines()}
    assert lines["server.port"].split() == ["server.port", "=", "9001", "#", "treadle.toml:3"]
    assert lines["limits.wall_s"].endswith("# environment TREADLE_LIMITS__WALL_S")
    assert lines["store.url"].endswith("# command line")
    assert lines["limits.idle_s"].endswith("# default")
    assert lines["upstream[0].key_env"].endswith("# environment OPENAI_API_KEY")
    assert shown.endswith("# key OPENAI_API_KEY: set\n")
    assert "secret" not in shown


def test_show_writes_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """The same as data."""
    assert main(["config", "show", "--json"]) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    rows = {row["key"]: (row["value"], row["source"]) for row in shown["settings"]}
    assert shown["file"] == "treadle.toml"
    assert shown["keys"] == {"OPENAI_API_KEY": "set"}
    assert rows["server.port"] == (9001, "treadle.toml:3")
    assert rows["upstream[0].headers"] == ({}, "default")


def test_the_example_passes_the_check(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """What `config example` prints, `config check` accepts."""
    assert main(["config", "example"]) == 0
    (here / "example.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["config", "check", "example.toml"]) == 0
    assert capsys.readouterr().out == "example.toml: no mistakes\n"


def test_check_looks_at_what_the_file_names(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """Without a name it takes treadle.toml; missing files, folders and local tools are mistakes beside the others."""
    (here / "treadle.toml").write_text(
        "[limits]\nwall_s = 'x'\n[tools]\nload = ['no.py', 'package.module']\n"
        "[tools.local]\nenabled = ['glob', 'globb']\nroot = 'nowhere'\n",
        encoding="utf-8",
    )
    assert main(["config", "check"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "treadle: treadle.toml:2: limits.wall_s: expected `float`, got `str`",
        "treadle.toml:4: tools.load: there is no file no.py",
        "treadle.toml:7: tools.local.root: there is no folder nowhere",
        "treadle.toml:6: tools.local.enabled: there is no local tool 'globb'",
        "  hint: there are glob, file_read, grep, outline, output_read, file_write, file_edit, bash",
        f"  hint: {ANY_HINT}",
    ]


def test_check_finds_every_mistake(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """Code 2, one line for each mistake, file and line in front."""
    (here / "bad.toml").write_text("[limits]\nmax_itrations = 1\nwall_s = 'x'\n", encoding="utf-8")
    assert main(["config", "check", "bad.toml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "treadle: bad.toml:2: limits.max_itrations: unknown key; did you mean max_iterations?",
        "bad.toml:3: limits.wall_s: expected `float`, got `str`",
        f"  hint: {ANY_HINT}",
    ]
