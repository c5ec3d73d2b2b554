"""The envelope of a result: `ok`, `data`, `warnings` and `errors`, from what the model read."""

from typing import Any

import msgspec
import pytest

from treadle.core.items import ResultItem, TextPart
from treadle.core.result_envelope import add_warnings, envelope_of, error_in
from treadle.core.tool_definitions import Envelope, Fault, failure, flat_failure


def result(text: str, rc: str = "ok") -> ResultItem:
    """A result as a run keeps it."""
    return ResultItem(call_id="c", output=(TextPart(text=text),), is_error=rc != "ok", rc=rc)


def gives(ok: bool, data: Any, warnings: tuple[str, ...] = (), errors: tuple[Fault, ...] = ()) -> Envelope:
    """An envelope with data as it is written."""
    return Envelope(ok=ok, data=msgspec.Raw(msgspec.json.encode(data)), warnings=warnings, errors=errors)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two\nlines", gives(True, "two\nlines")),
        ("", gives(True, "")),
        ("rain\n[warning] far\n[warning] old", gives(True, "rain", ("far", "old"))),
        ("[warning] empty", gives(True, "", ("empty",))),
        ('{"a":1}', gives(True, {"a": 1})),
        ('{"a":1,"warnings":["old"]}', gives(True, {"a": 1}, ("old",))),
        ('{"data":[1],"warnings":["old"]}', gives(True, [1], ("old",))),
        ('{"warnings":[1]}', gives(True, {"warnings": [1]})),
        ('{"error":"it is a word"}', gives(True, {"error": "it is a word"})),
        ("[1,2]", gives(True, [1, 2])),
        ("null", gives(True, None)),
        ('"text"', gives(True, '"text"')),
        ("007", gives(True, "007")),
    ],
)
def test_a_result_is_its_data_and_its_warnings(text: str, expected: Envelope) -> None:
    """JSON is the value, text is text; what was put in to warn is taken out again."""
    assert envelope_of(result(text)) == expected


def test_a_number_keeps_its_spelling() -> None:
    """What was written is what is given on."""
    assert bytes(envelope_of(result("1.10")).data) == b"1.10"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"error":{"code":"no", "message":"No."}}', gives(False, None, (), (Fault(code="no", message="No."),))),
        ('{"error":"No.","code":"no_city"}', gives(False, None, (), (Fault(code="no_city", message="No."),))),
        ('{"error":"No."}', gives(False, None, (), (Fault(code="timeout", message="No."),))),
        (
            '{"error":"No.","code":"x","output":"so far","warnings":["w"]}',
            gives(False, {"output": "so far"}, ("w",), (Fault(code="x", message="No."),)),
        ),
        (
            '{"error":{"code":"x","message":"No.","details":[{"path":"/a","message":"is bad"}]}}',
            gives(False, None, (), (Fault(code="x", message="No."), Fault(code="x", message="is bad", path="/a"))),
        ),
        ("it broke", gives(False, None, (), (Fault(code="timeout", message="it broke"),))),
        ("", gives(False, None, (), (Fault(code="timeout", message="failed"),))),
        ("[1]", gives(False, [1], (), (Fault(code="timeout", message="failed"),))),
    ],
)
def test_a_failure_is_its_errors_and_what_it_shows(text: str, expected: Envelope) -> None:
    """Both shapes of an error are read; one without a code has the result's."""
    assert envelope_of(result(text, "timeout")) == expected


@pytest.mark.parametrize("value", [{"a": 1}, {}, {"warnings": 1}, [1], 3, None, True])
def test_warnings_in_json_come_out_as_they_went_in(value: Any) -> None:
    """Whatever the value, the result stays JSON."""
    text = add_warnings(msgspec.json.encode(value), ("one", "two")).decode()
    assert envelope_of(result(text)) == gives(True, value, ("one", "two"))


def test_a_failure_has_the_shape_of_the_local_tools_where_it_is_theirs() -> None:
    """The words stay, the code stands beside them, and what a limit added is kept."""
    made = failure("denied", "Not run: a person denied this call.")
    assert flat_failure(made).text == '{"error":"Not run: a person denied this call.","code":"denied"}'
    limited = msgspec.structs.replace(made, text='{"error":{"code":"x","message":"No."},"limit_reached":true}')
    assert flat_failure(limited).text == '{"error":"No.","code":"x","limit_reached":true}'
    flat = flat_failure(made)
    assert flat_failure(flat) == flat
    assert flat_failure(msgspec.structs.replace(made, text="no JSON")).text == "no JSON"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"error":{"code":"a","message":"m"}}', "a"),
        ('{"error":"m","code":"b"}', "b"),
        ('{"error":"m"}', None),
        ('{"code":"b"}', None),
        ("[]", None),
        ("text", None),
    ],
)
def test_the_code_that_a_text_names_is_found_in_either_shape(text: str, code: str | None) -> None:
    """An upstream reads only the text."""
    found = error_in(text)
    assert (None if found is None else found.code) == code
