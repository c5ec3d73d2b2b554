import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import msgspec
import pydantic
import pytest

from treadle.core.errors import ConfigError
from treadle.tools.json_schema import Schema
from treadle.tools.signature_schema import read_docstring, read_signature, write_schema
from treadle.tools.tool_context import ToolContext


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Box:
    width: float


class Row(TypedDict):
    name: str
    size: NotRequired[int]


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(description="Street and number")


class Person(pydantic.BaseModel):
    title: str
    homes: list[Address] = []


def schema_of(function: Any) -> Schema:
    """Describe a function."""
    return write_schema(read_signature(function), "here")


def test_plain_types_become_a_strict_object() -> None:
    """Types, defaults and requiredness end in one object schema that refuses unknown fields."""

    def function(a: str, b: int, c: float = 1.5, d: bool = True, e: list[str] | None = None) -> None: ...

    assert schema_of(function) == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer"},
            "c": {"type": "number", "default": 1.5},
            "d": {"type": "boolean", "default": True},
            "e": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_rich_types_are_described_by_definitions() -> None:
    """Enums, structs, dataclasses, TypedDicts and dates all have a schema, nested ones refuse unknown fields too."""

    def function(
        colour: Colour, point: Point, box: Box, row: Row, when: datetime.datetime, mode: Literal["a", "b"] = "a"
    ) -> None: ...

    assert schema_of(function) == {
        "type": "object",
        "properties": {
            "colour": {"$ref": "#/$defs/Colour"},
            "point": {"$ref": "#/$defs/Point"},
            "box": {"$ref": "#/$defs/Box"},
            "row": {"$ref": "#/$defs/Row"},
            "when": {"type": "string"},
            "mode": {"enum": ["a", "b"], "default": "a"},
        },
        "required": ["colour", "point", "box", "row", "when"],
        "$defs": {
            "Colour": {"enum": ["blue", "red"]},
            "Point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
                "additionalProperties": False,
            },
            "Box": {
                "type": "object",
                "properties": {"width": {"type": "number"}},
                "required": ["width"],
                "additionalProperties": False,
            },
            "Row": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
    }


def test_pydantic_models_are_described_by_pydantic() -> None:
    """Models keep their descriptions and constraints, a field named title survives, definitions are merged."""

    def function(person: Person, near: Point, count: Annotated[int, pydantic.Field(ge=1)] = 1) -> None: ...

    schema = schema_of(function)
    assert schema["properties"]["person"]["properties"] == {
        "title": {"type": "string"},
        "homes": {"type": "array", "items": {"$ref": "#/$defs/p0_Address"}, "default": []},
    }
    assert schema["properties"]["count"] == {"type": "integer", "minimum": 1, "default": 1}
    assert sorted(schema["$defs"]) == ["Point", "p0_Address"]
    assert schema["$defs"]["p0_Address"]["additionalProperties"] is False


def test_two_models_of_one_name_are_kept_apart() -> None:
    """A msgspec and a pydantic definition with the same name do not overwrite each other."""
    twin = msgspec.defstruct("Address", [("zip", str)])

    def function(one: Any, two: Any) -> None: ...

    function.__annotations__ = {"one": Person, "two": twin}
    assert sorted(schema_of(function)["$defs"]) == ["Address", "p0_Address"]


def test_descriptions_come_from_annotations_then_from_the_docstring() -> None:
    """Annotated words win over the Args section; both end in the schema."""

    def function(
        a: Annotated[int, "first"], b: int, c: Annotated[int, msgspec.Meta(ge=1, description="third")]
    ) -> None:
        """Do it.

        Args:
            a: not this
            b: second,
                on two lines
            c: nor this
        """

    properties = schema_of(function)["properties"]
    assert [properties[name]["description"] for name in "abc"] == ["first", "second, on two lines", "third"]
    assert properties["c"]["minimum"] == 1


def test_the_first_paragraph_is_the_description() -> None:
    """The docstring is read up to its first blank line; sections end where the next one starts."""
    text = """Find things
    quickly.

    More that the model does not need.

    Args:
        name (str): The name: all of it.
        **rest: Others.

    Returns:
        nothing: at all
    """
    assert read_docstring(text) == ("Find things quickly.", {"name": "The name: all of it.", "rest": "Others."})


@pytest.mark.parametrize("text", ["", "   ", "Args:\n    a: x"])
def test_a_docstring_may_say_nothing(text: str) -> None:
    """Missing descriptions are empty, not invented."""
    assert read_docstring(text)[0] == ""


def test_the_context_is_no_parameter_of_the_model() -> None:
    """A parameter annotated ToolContext is remembered by name and left out of the schema."""

    def function(context: ToolContext, a: int, other: Optional[ToolContext] = None) -> None: ...  # noqa: UP045

    assert list(schema_of(function)["properties"]) == ["a"]
    assert read_signature(function).context_names == ("context", "other")


def test_a_default_without_a_json_form_is_not_shown() -> None:
    """Such a default still makes the parameter optional."""

    def function(a: Any = object()) -> None: ...  # noqa: B008

    assert schema_of(function) == {"type": "object", "properties": {"a": {}}, "additionalProperties": False}


def _positional(a: int, /) -> None: ...
def _variadic(*a: int) -> None: ...
def _keywords(**a: int) -> None: ...
def _bare(a) -> None: ...
def _custom(a: complex) -> None: ...
def _two_objects(a: Point | Box) -> None: ...
def _lost(a: "NoSuchType") -> None: ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
def _generator(a: int):
    yield a


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_positional, 'parameter "a" is positional-only'),
        (_variadic, 'parameter "a" takes any number'),
        (_keywords, 'parameter "a" takes any names'),
        (_bare, 'parameter "a" has no type annotation'),
        (_custom, 'parameter "a" has a type that cannot be described'),
        (_two_objects, 'parameter "a" has a type that cannot be described'),
        (_lost, "NoSuchType"),
        (_generator, "is a generator"),
    ],
)
def test_what_cannot_be_a_tool_is_named(function: Any, words: str) -> None:
    """The error says which function and which parameter, and why."""
    with pytest.raises(ConfigError) as caught:
        write_schema(read_signature(function), function.__name__)
    assert words in caught.value.message
    assert function.__name__ in caught.value.message


def test_pydantic_mixed_with_a_foreign_type_is_named() -> None:
    """A type that pydantic cannot describe is refused with the parameter's name."""

    class Strange: ...

    def function(a: dict[str, Any]) -> None: ...

    function.__annotations__ = {"a": Annotated[Strange, pydantic.Field(description="x")]}
    with pytest.raises(ConfigError, match='parameter "a"'):
        schema_of(function)
