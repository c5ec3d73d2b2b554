from typing import Any

import msgspec
import pytest

from treadle.protocols.translation.loose_values import image_url, list_in, object_in, text_in, value_of


@pytest.mark.parametrize(
    ("raw", "value"),
    [(b'{"a":[1]}', {"a": [1]}), (b'"x"', "x"), (b"{", None), (b"", None), (b"\xff", None), (None, None)],
)
def test_what_cannot_be_read_is_none(raw: bytes | None, value: Any) -> None:
    """A provider may write what it likes."""
    assert value_of(None if raw is None else msgspec.Raw(raw)) == value


@pytest.mark.parametrize("odd", [None, 1, True, 0.5])
def test_what_is_of_another_kind_is_empty(odd: Any) -> None:
    """Never an error: nothing here is acted on."""
    assert (object_in(odd), list_in(odd), text_in(odd)) == ({}, [], "")


def test_what_is_of_the_right_kind_is_itself() -> None:
    """And of no other."""
    assert [object_in(value) for value in ({"a": 1}, [1], "x")] == [{"a": 1}, {}, {}]
    assert [list_in(value) for value in ({"a": 1}, [1], "x")] == [[], [1], []]
    assert [text_in(value) for value in ({"a": 1}, [1], "x")] == ["", "", "x"]


@pytest.mark.parametrize(
    ("result", "form", "url"),
    [
        ("AAAA", "", "data:image/png;base64,AAAA"),
        ("AAAA", "webp", "data:image/webp;base64,AAAA"),
        ("data:image/gif;base64,AAAA", "png", "data:image/gif;base64,AAAA"),
    ],
)
def test_a_generated_image_has_an_address(result: str, form: str, url: str) -> None:
    """Whatever form it came in."""
    assert image_url(result, form) == url
