import dataclasses
import datetime
import enum
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from treadle.tools.argument_validation import BadArguments, Converter, check_arguments, read_arguments
from treadle.tools.json_schema import Validator
from treadle.tools.signature_schema import read_signature
from treadle.tools.thread_pool import Threads


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int


@dataclasses.dataclass
class Box:
    width: float


class Model(pydantic.BaseModel):
    n: int = pydantic.Field(ge=1)

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n


def converter(function: Any) -> Converter:
    """Return the converter for the parameters of a function."""
    return Converter(function.__name__, read_signature(function).parameters)


@pytest.mark.parametrize("text", ["", "  \n\t", "{}"])
def test_blank_means_no_arguments(text: str) -> None:
    """Models leave the arguments out when there are none."""
    assert read_arguments(text, 100) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a":1,"a":2}', 'the key "a" is given twice'),
        ('{"b":[{"a":1,"a":1}]}', 'the key "a" is given twice'),
        ('{"b":"{:","a":1,"a":1}', 'the key "a" is given twice'),
        ('{"a":1,"\\u0061":1}', 'the key "a" is given twice'),
        ('{"a":NaN}', "not valid JSON"),
        ('{"a":1e400}', "not valid JSON"),
        ('{"a":1', "not valid JSON"),
        ("{} x", "not valid JSON"),
        ('{"a":"\\ud800"}', "not valid JSON"),
        ('{"a":"\ud800"}', "not valid JSON"),
        ("\ufeff{}", "not valid JSON"),
        ('{"a":' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a":' + "[" * 1000 + "]" * 1000 + "}", "nests deeper"),
        ("[1]", "must be a JSON object"),
        ('"x"', "must be a JSON object"),
        ("null", "must be a JSON object"),
    ],
)
def test_bad_json_is_refused_in_words(text: str, words: str) -> None:
    """Each kind of bad JSON is an error the model can act on."""
    with pytest.raises(BadArguments, match=words) as caught:
        read_arguments(text, 100_000)
    assert caught.value.info.code == "invalid_arguments"


def test_arguments_over_the_cap_are_refused_before_parsing() -> None:
    """Size is counted in bytes and has its own code."""
    with pytest.raises(BadArguments) as caught:
        read_arguments('{"a":"' + "é" * 50 + '"}', 100)
    assert caught.value.info.code == "arguments_too_large"
    assert "108 bytes" in caught.value.message


def test_values_are_converted_to_the_annotated_types() -> None:
    """The function gets dates, enums, structs, dataclasses and models, not dictionaries."""

    def function(
        when: datetime.date, colour: Colour, points: list[Point], box: Box, model: Model, maybe: int | None, rest: Any
    ) -> None: ...

    arguments = {
        "when": "2026-01-02",
        "colour": "red",
        "points": [{"x": 1}],
        "box": {"width": 2},
        "model": {"n": 2},
        "maybe": None,
        "rest": {"k": [1]},
    }
    assert converter(function).convert(arguments) == {
        "when": datetime.date(2026, 1, 2),
        "colour": Colour.RED,
        "points": [Point(x=1)],
        "box": Box(width=2.0),
        "model": Model(n=2),
        "maybe": None,
        "rest": {"k": [1]},
    }


def test_what_is_not_given_is_left_to_the_function() -> None:
    """Missing optional arguments are not passed at all, so the function's own defaults hold."""

    def function(a: int = 1, b: Point | None = None) -> None: ...

    assert converter(function).convert({}) == {}


def test_a_whole_float_is_taken_as_an_integer() -> None:
    """JSON Schema allows 2.0 for an integer, so conversion must not refuse it."""

    def function(a: int, b: list[Point], c: float) -> None: ...

    assert converter(function).convert({"a": 2.0, "b": [{"x": 3.0}], "c": 1.5}) == {"a": 2, "b": [Point(x=3)], "c": 1.5}


@pytest.mark.parametrize(
    ("arguments", "path", "words"),
    [
        ({"when": "yesterday"}, "/when", "date"),
        ({"points": [{"x": 1}, {"x": "a"}]}, "/points/1/x", "int"),
        ({"table": {"k": "a"}}, "/table/*", "int"),
        ({"model": {"n": 3}}, "/model/n", "must be even"),
    ],
)
def test_what_a_schema_cannot_say_is_refused_with_its_path(arguments: dict[str, Any], path: str, words: str) -> None:
    """Errors of the conversion have the same shape as those of the validation."""

    def function(
        when: datetime.date = datetime.date.min,
        points: list[Point] = [],  # noqa: B006
        table: dict[str, int] = {},  # noqa: B006
        model: Annotated[Model | None, "m"] = None,
    ) -> None: ...

    with pytest.raises(BadArguments) as caught:
        converter(function).convert(arguments)
    [fault] = caught.value.faults
    assert fault.path == path
    assert words in fault.message


async def test_errors_are_listed_off_the_loop_and_raised_together() -> None:
    """Everything wrong is raised at once."""
    validator = Validator(msgspec.Raw(b'{"required":["a","b"]}'))
    threads = Threads(1)
    with pytest.raises(BadArguments, match="parameters of f") as caught:
        await check_arguments(validator, "f", {}, threads)
    assert sorted(fault.path or "" for fault in caught.value.faults) == ["/a", "/b"]
    threads.close()


async def test_a_list_of_errors_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes without details rather than late."""
    import threading

    free = threading.Event()
    monkeypatch.setattr("treadle.tools.argument_validation.FAULTS_WAIT_S", 0.01)
    validator = Validator(msgspec.Raw(b'{"required":["a"]}'))
    monkeypatch.setattr(validator, "faults", lambda _: free.wait(5) and [])
    threads = Threads(1)
    with pytest.raises(BadArguments) as caught:
        await check_arguments(validator, "f", {}, threads)
    free.set()
    assert caught.value.faults == ()
    threads.close()


@pytest.mark.parametrize("text", [r'{"a":"x\ud800y"}', r'{"a":"\uDC00"}', r'{"\ud83d":1}'])
def test_half_of_a_character_is_refused_in_words(text: str) -> None:
    """It stands for no character, so no tool runs with another one in its place."""
    with pytest.raises(BadArguments) as refused:
        read_arguments(text, 1_000)
    assert "only half of a character" in refused.value.message


def test_both_halves_are_a_character() -> None:
    """JSON spells what is beyond its four digits so."""
    assert read_arguments(r'{"a":"\ud83d\ude00"}', 1_000) == {"a": "\U0001f600"}
