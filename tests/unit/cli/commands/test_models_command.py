"""`treadle models`: the names that -m takes."""

from pathlib import Path

import msgspec
import pytest

from treadle.cli.main import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder without any key."""
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_an_upstream_there_is_the_demo_model(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is kept for having asked."""
    assert main(["models"]) == 0
    assert capsys.readouterr().out == "demo\n"
    assert not (home / "data").exists()


def test_an_upstream_that_is_away_is_no_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the configuration names is there, with the default first."""
    (home / "treadle.toml").write_text(
        'default_model = "big"\n[[upstream]]\nname = "far"\nprotocol = "chat"\n'
        'base_url = "http://127.0.0.1:9/v1"\nmodels = ["small", "big"]\n',
        encoding="utf-8",
    )
    assert main(["models", "--config", "treadle.toml", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out) == ["big", "small"]


def test_a_server_that_is_away_is(capsys: pytest.CaptureFixture[str]) -> None:
    """It was asked for by name."""
    assert main(["models", "--server", "http://127.0.0.1:9"]) == 1
    assert "http://127.0.0.1:9 can not be reached" in capsys.readouterr().err
