"""The secret of an installation: the same for whoever shares it, readable by its owner alone."""

from pathlib import Path

import pytest

from treadle.config import Settings, StoreSection
from treadle.core.errors import ConfigError
from treadle.server.auth.installation_secret import FILE, VARIABLE, is_shared, read_secret


def _settings(url: str, persistence: str = "on") -> Settings:
    return Settings(store=StoreSection(url=url, persistence="on" if persistence == "on" else "off"))


def test_a_file_beside_the_journal_keeps_it(tmp_path: Path) -> None:
    """Made once, for its owner alone; another process reads the same."""
    settings = _settings(f"sqlite:///{tmp_path}/treadle.db")
    secret = read_secret(settings, {})
    assert (len(secret), read_secret(settings, {})) == (32, secret)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert is_shared(settings, {})


def test_the_environment_shares_it_between_machines(tmp_path: Path) -> None:
    """It goes before the file, and one that could be guessed is refused."""
    settings = _settings(f"sqlite:///{tmp_path}/treadle.db")
    assert read_secret(settings, {VARIABLE: "x" * 32}) == b"x" * 32
    assert not (tmp_path / FILE).exists()
    with pytest.raises(ConfigError, match="guessed"):
        read_secret(settings, {VARIABLE: "short"})


@pytest.mark.parametrize("url", ["", "sqlite:///:memory:", "postgresql://u@h/d"])
def test_without_a_file_it_lasts_as_long_as_the_process(url: str) -> None:
    """Each process has its own, and says that nobody shares it."""
    settings = _settings(url)
    assert read_secret(settings, {}) != read_secret(settings, {})
    assert not is_shared(settings, {})
    assert is_shared(settings, {VARIABLE: "x" * 32})


def test_a_file_that_is_no_secret_is_not_used(tmp_path: Path) -> None:
    """Too short, a folder, a link to elsewhere, or no folder at all: the process makes up its own."""
    settings = _settings(f"sqlite:///{tmp_path}/treadle.db")
    (tmp_path / FILE).write_bytes(b"short")
    assert len(read_secret(settings, {})) == 32
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    assert len(read_secret(settings, {})) == 32
    assert len(read_secret(_settings(f"sqlite:///{tmp_path}/no/treadle.db"), {})) == 32
