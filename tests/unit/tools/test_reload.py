"""Files and modules of tools are loaded again when they change, and never half."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.config import Settings, StoreSection, ToolsSection
from treadle.core.errors import ConfigError
from treadle.runtime import Runtime
from treadle.tools import ToolRegistry
from treadle.tools.tool_loading import Reloader

HEAD = "from treadle import tool\n\n"


def source(name: str, value: object = 1, more: str = "") -> str:
    """Return the code of one tool."""
    return f"{HEAD}{more}@tool\ndef {name}() -> object:\n    '''Say {value}.'''\n    return {value!r}\n"


def change(path: Path, text: str) -> None:
    """Write a file so that its time tells, however coarse the clock."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10_000_000, before + 10_000_000))


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in a folder of our own, and forget what was imported from it."""
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def watched(place: str) -> tuple[ToolRegistry, Reloader]:
    """Load a place, and watch it."""
    registry = ToolRegistry()
    _ = registry.load_file(place) if place.endswith(".py") else registry.load_module(place)
    return registry, Reloader([place], registry.swap)


def names(registry: ToolRegistry) -> list[str]:
    """Return the names of the tools."""
    return [tool.name for tool in registry.tools()]


@pytest.mark.usefixtures("_fresh")
def test_a_changed_file_brings_its_new_tools(tmp_path: Path) -> None:
    """Tools come, go and change; a file that did not change is not run again."""
    path = tmp_path / "my_tools.py"
    path.write_text(source("one"))
    registry, reloader = watched(str(path))
    assert reloader.look() == {}
    change(path, source("two", 2))
    assert reloader.look() == {str(path): ["two"]}
    assert names(registry) == ["two"]
    found = registry.get("two")
    assert found is not None
    assert found() == 2
    assert reloader.look() == {}


@pytest.mark.usefixtures("_fresh")
def test_a_change_within_one_second_that_keeps_the_size_counts(tmp_path: Path) -> None:
    """Cached code of the old file is not taken for the new one."""
    path = tmp_path / "my_tools.py"
    path.write_text(source("one", 1))
    registry, reloader = watched(str(path))
    change(path, source("one", 2))
    assert reloader.look() == {str(path): ["one"]}
    found = registry.get("one")
    assert found is not None
    assert found() == 2


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("broken", ["def broken(:\n", "import no_such_module\n", "x = 1\n", "raise ValueError('no')\n"])
def test_a_file_that_cannot_be_loaded_leaves_the_old_tools(tmp_path: Path, broken: str) -> None:
    """The mistake is told once, and the next change is tried again."""
    path = tmp_path / "my_tools.py"
    path.write_text(source("one"))
    registry, reloader = watched(str(path))
    change(path, broken)
    (outcome,) = reloader.look().values()
    assert isinstance(outcome, ConfigError)
    assert names(registry) == ["one"]
    assert reloader.look() == {}
    change(path, source("three"))
    assert reloader.look() == {str(path): ["three"]}
    assert names(registry) == ["three"]


@pytest.mark.usefixtures("_fresh")
def test_a_name_that_is_taken_leaves_the_old_tools(tmp_path: Path) -> None:
    """Nothing is put in by half."""
    path = tmp_path / "my_tools.py"
    path.write_text(source("one"))
    registry, reloader = watched(str(path))

    def taken() -> int:
        """Be there."""
        return 0

    registry.add(taken)
    change(path, source("taken"))
    (outcome,) = reloader.look().values()
    assert isinstance(outcome, ConfigError)
    assert names(registry) == ["one", "taken"]


@pytest.mark.usefixtures("_fresh")
def test_a_changed_neighbour_counts(tmp_path: Path) -> None:
    """What a file of tools imports from beside it is code of the tools too."""
    neighbour = tmp_path / "reload_neighbour.py"
    neighbour.write_text("VALUE = 1\n")
    path = tmp_path / "my_tools.py"
    path.write_text(
        f"{HEAD}from reload_neighbour import VALUE\n\n@tool\ndef tell() -> int:\n    '''Tell.'''\n    return VALUE\n"
    )
    registry, reloader = watched(str(path))
    change(neighbour, "VALUE = 2\n")
    assert reloader.look() == {str(path): ["tell"]}
    found = registry.get("tell")
    assert found is not None
    assert found() == 2


@pytest.mark.usefixtures("_fresh")
def test_a_module_is_loaded_again_by_name(tmp_path: Path) -> None:
    """Also one in a package."""
    package = tmp_path / "reload_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    path = package / "tools.py"
    path.write_text(source("one"))
    registry, reloader = watched("reload_package.tools")
    change(path, source("two"))
    assert reloader.look() == {"reload_package.tools": ["two"]}
    assert names(registry) == ["two"]


@pytest.mark.usefixtures("_fresh")
async def test_a_runtime_that_watches_offers_the_new_tools(tmp_path: Path) -> None:
    """`serve --reload`: without a restart, under the configured time."""
    path = tmp_path / "my_tools.py"
    path.write_text(source("one"))
    settings = Settings(store=StoreSection(persistence="off"), tools=ToolsSection(load=(str(path),)))
    told: asyncio.Queue[tuple[str, list[str] | ConfigError]] = asyncio.Queue()
    async with Runtime(settings) as runtime:
        watching = asyncio.create_task(runtime.watch_tools(lambda place, outcome: told.put_nowait((place, outcome))))
        try:
            await asyncio.sleep(0)
            change(path, source("two"))
            async with asyncio.timeout(20):
                assert await told.get() == (str(path), ["two"])
        finally:
            watching.cancel()
        assert [tool.name for tool in runtime.registry.tools()] == ["two"]
