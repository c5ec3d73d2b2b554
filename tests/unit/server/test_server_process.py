"""What is checked before a server listens."""

import tomllib
from pathlib import Path

import pytest
import uvicorn

from treadle.core.errors import ConfigError
from treadle.server.server_process import UVICORN, check_uvicorn

PYPROJECT = next(each / "pyproject.toml" for each in Path(__file__).parents if (each / "pyproject.toml").exists())


def test_the_uvicorn_that_is_installed_is_one_that_works() -> None:
    """Else no server would start here."""
    check_uvicorn(uvicorn.__version__)


@pytest.mark.parametrize("version", ["0.40.0", "0.46.0", "0.52.4", "0.55.0", "0.55.0rc1", "1.0", "unknown"])
def test_another_uvicorn_is_refused_with_what_to_install(version: str) -> None:
    """The edge builds on its private classes: on some versions it would answer 400 to everything."""
    with pytest.raises(ConfigError, match=f"uvicorn {version} is installed") as caught:
        check_uvicorn(version)
    assert caught.value.info.hint == 'Run: pip install "uvicorn>=0.53,<0.55"'


@pytest.mark.parametrize("version", ["0.53.0", "0.54.0", "0.54.1"])
def test_a_uvicorn_within_the_bounds_is_taken(version: str) -> None:
    """Patches of a version change nothing that the edge uses."""
    check_uvicorn(version)


def test_the_package_asks_for_the_same_versions() -> None:
    """So that an installer does not choose one that the server then refuses."""
    dependencies = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    least, below = (".".join(map(str, each)) for each in UVICORN)
    assert [each for each in dependencies if each.startswith("uvicorn")] == [f"uvicorn>={least},<{below}"]
