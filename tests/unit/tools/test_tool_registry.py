import pathlib

import pytest

from treadle.core.errors import ConfigError
from treadle.tools import ToolRegistry, tool


@tool
def zebra() -> None:
    """Be the last."""


@tool
def ant() -> None:
    """Be the first."""


def test_tools_are_listed_in_a_stable_order() -> None:
    """The order does not depend on who registered first, so that plans with equal tools are equal."""
    assert ToolRegistry([zebra, ant]).tools() == ToolRegistry([ant, zebra]).tools() == (ant.declared, zebra.declared)


def test_a_plain_function_is_taken_with_the_default_policy() -> None:
    """The library may pass undecorated functions."""

    def plain(n: int) -> int:
        return n

    assert ToolRegistry([plain]).get("plain") is not None


def test_a_name_taken_twice_names_both_places() -> None:
    """The error says where both tools come from."""

    @tool(name="ant")
    def other() -> None: ...

    with pytest.raises(ConfigError) as caught:
        ToolRegistry([ant, other])
    assert caught.value.message == f'two tools are named "ant": {ant.origin} and {other.origin}'
    assert "test_tool_registry.py:" in ant.origin
    assert ant.origin != other.origin


def test_a_tool_can_be_taken_out() -> None:
    """Removing tells what was removed; removing nothing is no error."""
    registry = ToolRegistry([ant])
    assert registry.tools() == (ant.declared,)
    assert registry.remove("ant") is ant
    assert registry.remove("ant") is None
    assert registry.tools() == ()
    registry.add(zebra)
    assert registry.tools() == (zebra.declared,)


@pytest.mark.parametrize(("enabled", "names"), [(("*",), ["ant", "zebra"]), (("z*",), ["zebra"]), ((), [])])
def test_only_enabled_tools_are_there(enabled: tuple[str, ...], names: list[str]) -> None:
    """A tool that is off is neither listed, nor found, nor suggested."""
    registry = ToolRegistry([zebra, ant], enabled=enabled)
    assert [each.name for each in registry.tools()] == names
    assert [name for name in ("ant", "zebra") if registry.get(name)] == names
    assert registry.nearest("antt") == [name for name in names if name == "ant"]


def test_files_and_modules_can_be_loaded(tmp_path: pathlib.Path) -> None:
    """All tools of a place are added under their names."""
    place = tmp_path / "mine.py"
    place.write_text("from treadle.tools import tool\n@tool\ndef one() -> int:\n    return 1\n")
    registry = ToolRegistry()
    assert [each.name for each in registry.load_file(str(place))] == ["one"]
    assert [each.name for each in registry.load_module("treadle.tools.demo_tools")] == ["get_weather", "add", "convert"]
    assert [each.name for each in registry.tools()] == ["add", "convert", "get_weather", "one"]


def test_tools_are_swapped_at_once_or_not_at_all() -> None:
    """A name that is taken leaves everything as it was."""

    def one() -> int:
        """Be one."""
        return 1

    def two() -> int:
        """Be two."""
        return 2

    registry = ToolRegistry([one, two])
    again = tool(name="two")(one)
    with pytest.raises(ConfigError, match="two tools are named"):
        registry.swap(["one"], [again])
    assert [each.name for each in registry.tools()] == ["one", "two"]
    registry.swap(["two"], [again])
    found = registry.get("two")
    assert found is not None
    assert found() == 1


def test_tools_are_found_by_their_source() -> None:
    """Also those that are off."""

    def one() -> int:
        """Be one."""
        return 1

    registry = ToolRegistry([one], enabled=())
    assert [each.name for each in registry.held("python")] == ["one"]
    assert registry.held("mcp:x") == []
