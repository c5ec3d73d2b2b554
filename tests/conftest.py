"""What all tests share: how hard hypothesis tries, and an environment in which no real key or setting leaks in."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", deadline=None, max_examples=5_000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("TREADLE_HYPOTHESIS", "default"))

_FOREIGN = ("TREADLE_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OPENROUTER_", "ENABLE_TOOLS")
_OURS = ("TREADLE_HYPOTHESIS", "TREADLE_REQUIRE_BROWSER", "TREADLE_CHROMIUM")


def pytest_xdist_auto_num_workers() -> int:
    """Use two workers for each core: half of the tests wait for processes, browsers and databases."""
    return 2 * (os.cpu_count() or 1)


@pytest.fixture(autouse=True)
def _no_foreign_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Take keys and settings of the person who runs the tests out of the environment, and give them another home."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN) and name not in _OURS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
