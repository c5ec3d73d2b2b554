"""Errors that name a field, whatever msgspec says about it."""

import msgspec
import pytest

from treadle.core.errors import ErrorInfo, ProtocolError
from treadle.protocols.field_reader import at, missing
from treadle.protocols.field_reader import read_value as read


class Inner(msgspec.Struct):
    """A value inside another."""

    name: str


class Outer(msgspec.Struct):
    """A value with a list."""

    inner: list[Inner] = []
    count: int = 0


OUTER = msgspec.json.Decoder(Outer)


@pytest.mark.parametrize(
    ("data", "path", "error"),
    [
        (
            b'{"inner":[{"name":"a"},{}]}',
            "input[3]",
            ErrorInfo(
                code="missing_required_parameter",
                message="Missing required 'input[3].inner[1].name'.",
                status=400,
                param="input[3].inner[1].name",
            ),
        ),
        (
            b'{"count":"x"}',
            "",
            ErrorInfo(
                code="invalid_type", message="Invalid 'count': Expected `int`, got `str`.", status=400, param="count"
            ),
        ),
        (
            b"[]",
            "",
            ErrorInfo(code="invalid_type", message="Invalid body: Expected `object`, got `array`.", status=400),
        ),
        (
            b'{"count"',
            "",
            ErrorInfo(
                code="invalid_json",
                message="Invalid body: Input data was truncated.",
                status=400,
            ),
        ),
    ],
)
def test_errors_are_complete(data: bytes, path: str, error: ErrorInfo) -> None:
    """The code, the words and the path are all there."""
    with pytest.raises(ProtocolError) as caught:
        read(OUTER, data, path)
    assert caught.value.info == error


def test_good_values_are_returned() -> None:
    """What fits is decoded."""
    assert read(OUTER, b'{"inner":[{"name":"a"}],"other":1}') == Outer(inner=[Inner(name="a")])


def test_paths_join_with_a_dot_except_at_the_top() -> None:
    """A field of the body itself has no prefix."""
    assert (at("", "model"), at("input[0]", "id")) == ("model", "input[0].id")
    assert missing("model").info.param == "model"
