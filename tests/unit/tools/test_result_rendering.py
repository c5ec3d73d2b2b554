import dataclasses
import datetime
import decimal
import enum
import pathlib
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ToolError, ToolFailed
from treadle.core.items import ImagePart, TextPart
from treadle.core.tool_definitions import Envelope, Fault
from treadle.tools.argument_validation import BadArguments
from treadle.tools.result_rendering import (
    SUMMARY_CHARS_MAX,
    ToolAnswer,
    answer_of,
    answer_of_error,
    cut_output,
    parts_with,
    with_warnings,
    write_summary,
    write_text,
)

GOLDEN = pathlib.Path(__file__).parent / "golden" / "model_text.txt"


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int


@dataclasses.dataclass
class Box:
    width: float


class Model(pydantic.BaseModel):
    when: datetime.date


REFUSED = BadArguments(
    "The arguments do not fit the parameters of f.",
    (
        Fault(code="invalid_arguments", path="/city", message="is required"),
        Fault(code="invalid_arguments", path="/days", message='the value is not of type "integer"'),
    ),
)
NOT_FOUND = ToolAnswer(
    envelope=Envelope(
        ok=False,
        data=msgspec.Raw(b'{"did_you_mean":["a.py"]}'),
        errors=(Fault(code="not_found", message="File not found: b.py"),),
    )
)
CASES: dict[str, str] = {
    "text": write_text(answer_of("two\nlines")),
    "empty text": write_text(answer_of("")),
    "text that looks like JSON": write_text(answer_of('{"a": 1}')),
    "nothing": write_text(answer_of(None)),
    "integer": write_text(answer_of(3)),
    "float": write_text(answer_of(2.5)),
    "boolean": write_text(answer_of(True)),
    "not a number": write_text(answer_of(float("nan"))),
    "object": write_text(answer_of({"b": 1, "a": [1, None, "é"]})),
    "list": write_text(answer_of(["a", 1])),
    "empty list": write_text(answer_of([])),
    "enum": write_text(answer_of(Colour.RED)),
    "decimal": write_text(answer_of(decimal.Decimal("1.10"))),
    "msgspec": write_text(answer_of(Point(x=1))),
    "dataclass": write_text(answer_of([Box(width=2)])),
    "pydantic": write_text(answer_of({"m": Model(when=datetime.date(2026, 1, 2))})),
    "path": write_text(answer_of(pathlib.PurePosixPath("a/b"))),
    "lone surrogate": write_text(answer_of("a\ud800b")),
    "envelope": write_text(answer_of(Envelope(ok=True, data=msgspec.Raw(b'{"a":1}'), warnings=("old data",)))),
    "warnings": write_text(with_warnings(answer_of("rain"), ["station\nis far", "old"])),
    "warning of nothing": write_text(with_warnings(answer_of(""), ["empty"])),
    "error": write_text(answer_of_error(ToolError("No such city.", code="no_city"))),
    "error with a warning": write_text(with_warnings(answer_of_error(ToolFailed("Down.")), ["try later"])),
    "invalid arguments": write_text(answer_of_error(REFUSED)),
    "failed envelope": write_text(
        answer_of(
            Envelope(ok=False, errors=(Fault(code="a", message="one"), Fault(code="b", message="two", path="/x")))
        )
    ),
    "failed envelope without a reason": write_text(answer_of(Envelope(ok=False))),
    "S3 object": write_text(answer_of(Envelope(ok=True, data=msgspec.Raw(b'{"output":"a\\nb","count":2}'))), "s3"),
    "S3 error": write_text(answer_of_error(ToolError("Permission denied: x", code="permission_denied")), "s3"),
    "S3 error with more": write_text(NOT_FOUND, "s3"),
    "S3 invalid arguments": write_text(answer_of_error(REFUSED), "s3"),
    "text part": write_text(answer_of([TextPart(text="see: "), ImagePart(url="data:image/png;base64,AA==")])),
}


def test_what_the_model_reads_is_fixed_by_a_golden_file() -> None:
    """Every shape of a result has one spelling; changing it changes what models see, so it must be on purpose."""
    written = "".join(f"== {name}\n{text}\n" for name, text in CASES.items())
    assert written == GOLDEN.read_text()


def test_parts_are_kept_beside_their_text() -> None:
    """A single part or a list of parts is passed on as content."""
    image = ImagePart(url="data:image/png;base64,AA==")
    assert answer_of(image).parts == (image,)
    assert answer_of((TextPart(text="x"), image)).parts == (TextPart(text="x"), image)


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_are_refused(value: object) -> None:
    """Bytes are no JSON, and guessing an encoding would be worse than saying so."""
    with pytest.raises(ToolFailed, match="returned bytes"):
        answer_of(value)


def recursive() -> list[Any]:
    """Return a list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [object(), {1, object()}, {"a": "\ud800"}, recursive(), lambda: 1, {(1, 2): 3}, (x for x in "ab")]
)
def test_a_value_without_a_json_form_is_refused(value: object) -> None:
    """The model reads that the tool is at fault, not a repr."""
    with pytest.raises(ToolFailed, match="The tool returned"):
        answer_of(value)


@pytest.mark.parametrize("data", [msgspec.Raw(b"{"), "text", None])
def test_an_envelope_must_hold_json(data: Any) -> None:
    """A hand-made envelope with broken data is refused before it is written anywhere."""
    with pytest.raises(ToolFailed, match="not JSON"):
        answer_of(Envelope(ok=True, data=data))


def test_summaries_are_one_short_line() -> None:
    """A tool's own summary wins, then the error's message, then the first line that says something."""
    own = ToolAnswer(envelope=Envelope(ok=True), summary="3 files found")
    assert write_summary(own, "x") == "3 files found"
    assert write_summary(answer_of_error(ToolFailed("Down.")), '{"error":…}') == "Down."
    assert write_summary(answer_of("\n\n first\nsecond"), "\n\n first\nsecond") == "first"
    assert write_summary(answer_of(""), "") == ""
    long = write_summary(answer_of("x" * 500), "x" * 500)
    assert (len(long), long[-1]) == (SUMMARY_CHARS_MAX, "…")


def test_a_cut_says_what_is_missing_and_where_it_is() -> None:
    """The notice counts bytes and names the handle, or that nothing was kept."""
    text = "é" * 1000
    assert cut_output(text, 200, kept_bytes=2000, handle="blob_1") == (
        "é" * 58 + '\n[output cut: 116 of 2000 bytes shown; the whole is kept under the handle "blob_1"]'
    )
    assert cut_output(text, 200, kept_bytes=500, handle="blob_1").endswith(
        'of 2000 bytes shown; the first 500 bytes are kept under the handle "blob_1"]'
    )
    assert cut_output(text, 200).endswith("of 2000 bytes shown; the rest was not kept]")
    assert cut_output(text, 2000) == text


@given(st.text(), st.integers(0, 400), st.sampled_from([None, "blob_1"]))
def test_a_cut_is_valid_and_within_the_cap(text: str, cap: int, handle: str | None) -> None:
    """Whatever the text and however small the cap, the result is whole characters and not longer than the cap."""
    text = text.encode("utf-8", "replace").decode() * 20
    cut = cut_output(text, cap, kept_bytes=10, handle=handle)
    assert len(cut.encode()) <= cap or cut == text
    if len(text.encode()) <= cap:
        assert cut == text
    elif cap >= 120:
        assert text.startswith(cut.rpartition("\n[output cut: ")[0])
        assert cut.endswith("]")


def test_parts_follow_the_text_that_is_shown() -> None:
    """Where the text was cut or warned about, the parts say the same; images stay."""
    image = ImagePart(url="https://example.test/a.png")
    parts = (TextPart(text="long "), image, TextPart(text="text"))
    assert parts_with(parts, "long text") == parts
    assert parts_with(parts, "lo") == (TextPart(text="lo"), image)
    assert parts_with((image,), "") == (image,)
