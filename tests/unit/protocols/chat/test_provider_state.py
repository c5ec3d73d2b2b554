from typing import Any

import msgspec
import pytest

from treadle.core.items import Blob
from treadle.core.json import read_json, write_json
from treadle.protocols.chat.provider_state import may_return, show, take_back

MAKER = {"provider": "p", "model": "m"}


def _blob(data: Any) -> Blob:
    return Blob(provider="p", kind="k", data=write_json(data).decode(), model="m")


@pytest.mark.parametrize("data", [{"sig": "s"}, [{"data": "a"}, {"data": "b"}]])
def test_what_is_shown_comes_back_as_it_was(data: Any) -> None:
    """A client that sends its history back as it got it keeps the provider's state alive."""
    shown = show(_blob(data))
    assert take_back("k", msgspec.Raw(write_json(shown))) == _blob(data)


def test_the_maker_stands_in_every_entry() -> None:
    """Clients keep entries, not the fields beside them."""
    assert show(_blob([{"data": "a"}, 5])) == [{"data": "a", "treadle": MAKER}, {"treadle": MAKER}]


@pytest.mark.parametrize(
    "value",
    [
        {"sig": "own"},
        [{"data": "own"}],
        [{"data": "a", "treadle": MAKER}, {"data": "own"}],
        [{"treadle": MAKER}, {"treadle": {"provider": "q", "model": "m"}}],
        {"treadle": 5},
        {"treadle": {"provider": 1, "model": "m"}},
        [],
        "text",
        5,
        msgspec.Raw(b"[1e999]"),
    ],
)
def test_what_was_not_shown_is_not_taken(value: Any) -> None:
    """A client's own fields, mixed origins and nonsense stay what they are."""
    assert take_back("k", msgspec.Raw(write_json(value))) is None


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [("p", "m", True), ("p", "", True), ("p", "n", False), ("q", "m", False), ("", "m", False)],
)
def test_state_returns_only_to_its_maker(provider: str, model: str, expected: bool) -> None:
    """Provider and, where both are known, model."""
    assert may_return(_blob({}), provider, model) is expected


def test_an_unknown_provider_gets_nothing() -> None:
    """State of nobody is not sent to nobody."""
    assert not may_return(Blob(provider="", kind="k", data="{}"), "", "")
    assert read_json(_blob({"a": 1}).data) == {"a": 1}
