"""What was built, and a clean environment that has it."""

from pathlib import Path

import pytest

from clients.cache import NotInstalled
from package import builds
from package.pythons import Env, install, pythons


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once."""
    try:
        builds.backend()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    tree = builds.copy_tree(tmp_path_factory.mktemp("tree"))
    [built] = builds.build(tree, tmp_path_factory.mktemp("built"), "wheel")
    return built


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Env:
    """Install the wheel without any extra, on the oldest Python there is."""
    return install(next(iter(pythons().values())), tmp_path_factory.mktemp("plain"), wheel)
