"""How a tool first looked is remembered, and what changed stays out until it is accepted."""

from pathlib import Path

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.tools.mcp.tool_pins import CHANGED, NEW, REFUSED, TEXT_BYTES_MAX, Pins, ToolAppearance


@pytest.fixture(params=["memory", "file"])
def pins(request: pytest.FixtureRequest, tmp_path: Path) -> Pins:
    """Return pins of either kind."""
    return Pins(tmp_path / "deep" / "pins.json" if request.param == "file" else None)


def looks(digests: dict[str, str]) -> dict[str, ToolAppearance]:
    """Return how tools with these digests look."""
    return {name: ToolAppearance(digest=digest, text=f"{name} does {digest}") for name, digest in digests.items()}


def test_the_first_look_counts(pins: Pins) -> None:
    """A tool is pinned when it is first seen; the same again is no change, something else is."""
    assert pins.check("here", looks({"a": "1", "b": "1"})) == {}
    assert pins.check("here", looks({"a": "1", "b": "2"})) == {"b": CHANGED}
    assert pins.check("here", looks({"a": "1", "b": "1"})) == {}


def test_accepting_takes_what_was_last_seen(pins: Pins) -> None:
    """Only that: another change afterwards is a change again."""
    pins.check("here", looks({"a": "1", "b": "1"}))
    pins.check("here", looks({"a": "2", "b": "2"}))
    assert pins.accept("here", ["a", "no such"]) == ["a"]
    assert pins.check("here", looks({"a": "2", "b": "2"})) == {"b": CHANGED}
    assert pins.accept("here") == ["b"]
    assert pins.check("here", looks({"a": "3", "b": "2"})) == {"a": CHANGED}


def test_a_tool_that_comes_back_is_still_pinned(pins: Pins) -> None:
    """Leaving it out of one listing does not make a server's change unseen."""
    pins.check("here", looks({"a": "1"}))
    pins.check("here", looks({}))
    assert pins.check("here", looks({"a": "2"})) == {"a": CHANGED}


def test_servers_in_different_places_are_kept_apart(pins: Pins) -> None:
    """Another command or address is another server, whatever its name here."""
    pins.check("here", looks({"a": "1"}))
    assert pins.check("there", looks({"a": "2"})) == {}
    assert pins.accept("nowhere") == []


def test_pins_are_shared_by_processes_and_outlive_them(tmp_path: Path) -> None:
    """Whoever opens the file knows the same."""
    path = tmp_path / "pins.json"
    Pins(path).check("here", looks({"a": "1"}))
    assert Pins(path).check("here", looks({"a": "2"})) == {"a": CHANGED}
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


@pytest.mark.parametrize("content", [b"not json", b'{"x": 1}'])
def test_a_spoiled_file_is_an_error_that_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    """Nothing is pinned anew behind somebody's back."""
    path = tmp_path / "pins.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"pins\.json") as raised:
        Pins(path).check("here", looks({"a": "1"}))
    assert raised.value.hint is not None
    assert path.read_bytes() == content


def test_a_tool_that_comes_after_the_first_listing_waits(pins: Pins) -> None:
    """A new name waits like a change; a listing without tools is not the first one."""
    assert pins.check("here", {}) == {}
    assert pins.check("here", looks({"a": "1"})) == {}
    assert pins.check("here", looks({"a": "1", "b": "1"})) == {"b": NEW}
    assert pins.accept("here", ["b"]) == ["b"]
    assert pins.check("here", looks({"a": "1", "b": "1"})) == {}


def test_what_the_configuration_left_out_is_known_from_the_first_listing(pins: Pins) -> None:
    """A person who asks for more of a server's tools later is not asked again about what was listed then."""
    pins.check("here", looks({"a": "1"}), {"b": "1", "c": "1"})
    assert pins.check("here", looks({"a": "1", "b": "1", "c": "2"})) == {"c": CHANGED}


def test_a_refused_tool_stays_out_until_it_looks_different(pins: Pins) -> None:
    """Refusing is about one look: another one waits again. Accepting everything does not take what was refused."""
    pins.check("here", looks({"a": "1"}))
    pins.check("here", looks({"a": "2"}))
    assert pins.refuse("here", ["a"]) == ["a"]
    assert pins.check("here", looks({"a": "2"})) == {"a": REFUSED}
    assert pins.accept("here") == []
    assert pins.check("here", looks({"a": "3"})) == {"a": CHANGED}
    assert pins.accept("here") == ["a"]


def test_old_and_new_words_are_kept_to_be_compared(pins: Pins) -> None:
    """Of what waits both are known, of all else nothing more than needed; a decision may name the look it is about."""
    pins.check("here", looks({"a": "1"}))
    pins.check("here", looks({"a": "2"}))
    (waiting,) = pins.waiting("here")
    assert (waiting.kind, waiting.before, waiting.now) == ("changed", "a does 1", "a does 2")
    pins.check("here", looks({"a": "3"}))
    assert pins.accept("here", ["a"], waiting.digest) == []
    assert pins.accept("here", ["a"], "3") == ["a"]
    assert pins.waiting("here") == []


def test_a_huge_look_is_kept_in_part(pins: Pins) -> None:
    """The digest is of all of it."""
    pins.check("here", {"a": ToolAppearance(digest="1", text="x")})
    pins.check("here", {"a": ToolAppearance(digest="2", text="x" * (2 * TEXT_BYTES_MAX))})
    assert len(pins.waiting("here")[0].now) == TEXT_BYTES_MAX


def test_a_file_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    """It knows digests only: a change is noticed, and how the tool looked is not known."""
    path = tmp_path / "pins.json"
    Pins(path).check("here", looks({"a": "1"}))
    known = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({key: {"pinned": seen["pinned"]} for key, seen in known.items()}))
    assert Pins(path).check("here", looks({"a": "2"})) == {"a": CHANGED}
    assert Pins(path).waiting("here")[0].before == ""
