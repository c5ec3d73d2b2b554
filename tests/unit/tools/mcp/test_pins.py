"""How a tool first looked is remembered, and what changed stays out until it is accepted."""

from pathlib import Path

import pytest

from treadle.canon.errors import ConfigError
from treadle.tools.mcp.pins import Pins


@pytest.fixture(params=["memory", "file"])
def pins(request: pytest.FixtureRequest, tmp_path: Path) -> Pins:
    """Return pins of either kind."""
    return Pins(tmp_path / "deep" / "pins.json" if request.param == "file" else None)


def test_the_first_look_counts(pins: Pins) -> None:
    """A tool is pinned when it is first seen; the same again is no change, something else is."""
    assert pins.check("here", {"a": "1", "b": "1"}) == frozenset()
    assert pins.check("here", {"a": "1", "b": "2"}) == {"b"}
    assert pins.check("here", {"a": "1", "b": "1"}) == frozenset()


def test_accepting_takes_what_was_last_seen(pins: Pins) -> None:
    """Only that: another change afterwards is a change again."""
    pins.check("here", {"a": "1", "b": "1"})
    pins.check("here", {"a": "2", "b": "2"})
    assert pins.accept("here", ["a", "no such"]) == ["a"]
    assert pins.check("here", {"a": "2", "b": "2"}) == {"b"}
    assert pins.accept("here") == ["b"]
    assert pins.check("here", {"a": "3", "b": "2"}) == {"a"}


def test_a_tool_that_comes_back_is_still_pinned(pins: Pins) -> None:
    """Leaving it out of one listing does not make a server's change unseen."""
    pins.check("here", {"a": "1"})
    pins.check("here", {})
    assert pins.check("here", {"a": "2"}) == {"a"}


def test_servers_in_different_places_are_kept_apart(pins: Pins) -> None:
    """Another command or address is another server, whatever its name here."""
    pins.check("here", {"a": "1"})
    assert pins.check("there", {"a": "2"}) == frozenset()
    assert pins.accept("nowhere") == []


def test_pins_are_shared_by_processes_and_outlive_them(tmp_path: Path) -> None:
    """Whoever opens the file knows the same."""
    path = tmp_path / "pins.json"
    Pins(path).check("here", {"a": "1"})
    assert Pins(path).check("here", {"a": "2"}) == {"a"}
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


@pytest.mark.parametrize("content", [b"not json", b'{"x": 1}'])
def test_a_spoiled_file_is_an_error_that_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    """Nothing is pinned anew behind somebody's back."""
    path = tmp_path / "pins.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"pins\.json") as raised:
        Pins(path).check("here", {"a": "1"})
    assert raised.value.hint is not None
    assert path.read_bytes() == content
