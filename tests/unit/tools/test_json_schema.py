import time

import msgspec
import pytest

from treadle.core.json import write_json
from treadle.core.tool_definitions import Fault
from treadle.tools.compiled_schema import ERRORS_MAX, MESSAGE_BYTES_MAX, pointer
from treadle.tools.json_schema import BadSchema, Validator, every, unfold

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}


def validator(schema: object) -> Validator:
    """Compile a schema."""
    return Validator(msgspec.Raw(write_json(schema)))


def faults(schema: object, value: object) -> list[tuple[str | None, str]]:
    """List the paths and messages of what is wrong."""
    return [(fault.path, fault.message) for fault in validator(schema).faults(value)]


def test_every_error_is_listed_with_its_path() -> None:
    """All errors come back at once, each with a JSON Pointer to the field it is about."""
    assert sorted(faults(CITY, {"days": "x", "a~/b": 1})) == [
        ("/a~0~1b", "is not a known field"),
        ("/city", "is required"),
        ("/days", 'the value is not of type "integer"'),
    ]


def test_an_unknown_field_names_the_nearest_known_one() -> None:
    """A misspelt field is answered with the one that was probably meant."""
    assert faults(CITY, {"city": "Paris", "dayz": 1}) == [("/dayz", 'is not a known field; did you mean "days"?')]


def test_a_union_says_why_each_alternative_failed() -> None:
    """anyOf errors carry the reasons of the branches, not only that none fits."""
    schema = {"properties": {"x": {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 3}]}}}
    [(path, message)] = faults(schema, {"x": 9})
    assert path == "/x"
    assert "string" in message
    assert "maximum of 3" in message


def test_the_number_of_errors_is_bounded() -> None:
    """A value that is wrong everywhere is answered with the first errors only."""
    assert len(faults({"items": {"type": "string"}}, [1] * 500)) == ERRORS_MAX


def test_messages_do_not_repeat_the_value_and_are_bounded() -> None:
    """A huge or secret value is not echoed in the error about it."""
    [(_, message)] = faults({"pattern": "^b$"}, "a" * 100_000)
    assert "aaaa" not in message
    [(_, long)] = faults({"enum": ["x" * 50 + str(each) for each in range(100)]}, "no")
    assert len(long.encode()) <= MESSAGE_BYTES_MAX


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "file:///etc/passwd", "other.json", "#anchor"])
def test_nothing_outside_the_document_is_fetched(reference: str) -> None:
    """A reference that leaves the document is refused when the schema is read."""
    with pytest.raises(BadSchema, match="nothing is fetched"):
        validator({"properties": {"a": {"$ref": reference}}})


def test_a_foreign_meta_schema_is_refused() -> None:
    """A `$schema` that would have to be fetched is an error and not a request."""
    with pytest.raises(BadSchema, match="meta-schema"):
        validator({"$schema": "http://127.0.0.1:9/meta", "type": "object"})


@pytest.mark.parametrize(
    "schema", [{"properties": {"a": {"$ref": "#/$defs/no"}}}, {"$ref": "#/type", "type": "object"}]
)
def test_a_reference_must_point_at_a_schema(schema: object) -> None:
    """A reference to nowhere, or to something that is no schema, is named."""
    with pytest.raises(BadSchema, match="points"):
        validator(schema)


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}],
)
def test_a_reference_that_only_refers_to_itself_ends(schema: object) -> None:
    """Circular references are found out while unfolding, and validation still answers."""
    checked = validator(schema)
    assert checked.is_recursive
    assert checked.is_valid({})


def test_a_recursive_schema_validates_nested_values() -> None:
    """A tree type works: right ones pass, wrong ones are named by their path."""
    tree = {"properties": {"child": {"$ref": "#"}, "n": {"type": "integer"}}, "additionalProperties": False}
    checked = validator(tree)
    assert checked.is_valid({"child": {"child": {"n": 1}}})
    assert [fault.path for fault in checked.faults({"child": {"child": {"m": 1}}})] == ["/child/child/m"]


def test_errors_of_a_deep_value_in_a_branching_recursion_come_at_once() -> None:
    """Listing errors could double with each level; beyond a depth one general error answers instead."""
    branch = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}}
    checked = validator({"$defs": {"a": {"anyOf": [branch, branch]}}, "$ref": "#/$defs/a"})
    value: object = 1
    for _ in range(60):
        value = {"x": value}
    started = time.monotonic()
    assert not checked.is_valid(value)
    assert checked.faults(value) == [
        Fault(code="invalid_arguments", path="", message="does not fit the schema, and nests deeply")
    ]
    assert time.monotonic() - started < 5


def test_a_schema_bomb_is_refused() -> None:
    """Definitions that double with each reference are refused before they are compiled."""
    definitions: dict[str, object] = {"d0": {"type": "string"}}
    for level in range(1, 31):
        definitions[f"d{level}"] = {"anyOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    with pytest.raises(BadSchema, match="unfolds into more than"):
        validator({"$defs": definitions, "$ref": "#/$defs/d30"})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=(a+)+$)(a+)+$", "(a|aa)+(?!x)$"])
def test_a_hostile_pattern_does_not_hang(pattern: str) -> None:
    """A regular expression that explodes elsewhere is answered within a second."""
    checked = validator({"properties": {"a": {"type": "string", "pattern": pattern}}})
    started = time.monotonic()
    checked.is_valid({"a": "a" * 20_000 + "b"})
    assert time.monotonic() - started < 5


def test_a_pattern_too_large_to_compile_is_refused() -> None:
    """Repetitions of repetitions are refused by size, not compiled."""
    with pytest.raises(BadSchema):
        validator({"pattern": "(a{1000}){1000}"})


@pytest.mark.parametrize("key", ["$dynamicRef", "$recursiveRef"])
def test_references_with_dynamic_scope_are_refused(key: str) -> None:
    """What could unfold unseen is refused by name."""
    with pytest.raises(BadSchema, match="not supported"):
        validator({"properties": {"a": {key: "#x"}}})


def test_a_nested_id_is_refused() -> None:
    """A nested `$id` would change what references mean, so it is refused."""
    with pytest.raises(BadSchema, match=r"\$id"):
        validator({"properties": {"a": {"$id": "http://x/y", "type": "string"}}})


@pytest.mark.parametrize("raw", [b"[]", b"1", b"{", b'{"type":"wrong"}', b'{"properties":[]}', b"\xff"])
def test_what_is_no_schema_is_refused(raw: bytes) -> None:
    """Anything that is not a JSON Schema object gives a BadSchema and nothing else."""
    with pytest.raises(BadSchema):
        Validator(msgspec.Raw(raw))


def test_a_schema_nested_beyond_the_bound_is_refused() -> None:
    """Depth is bounded before anything recursive touches the schema."""
    with pytest.raises(BadSchema, match="nests deeper"):
        Validator(msgspec.Raw(b'{"not":' * 5000 + b"{}" + b"}" * 5000))


def test_type_names_from_the_wild_are_understood() -> None:
    """`dict`, `float`, `OBJECT` and `any` mean what their authors meant."""
    schema = {"type": "OBJECT", "properties": {"a": {"type": "float"}, "b": {"type": "dict"}, "c": {"type": "any"}}}
    checked = validator(schema)
    assert checked.is_valid({"a": 1.5, "b": {}, "c": "x"})
    assert not checked.is_valid({"a": "1.5"})
    assert not checked.is_valid([])


def test_booleans_are_not_integers_and_whole_floats_are() -> None:
    """The edge cases of numbers follow JSON Schema."""
    checked = validator({"type": "integer"})
    assert [checked.is_valid(value) for value in (True, 1, 1.0, 1.5)] == [False, True, True, False]


def test_every_schema_inside_is_walked() -> None:
    """The walk sees schemas behind each kind of keyword, and not values that only look like schemas."""
    schema = {
        "properties": {"a": {"const": 1}},
        "items": {"const": 2},
        "anyOf": [{"const": 3}, True],
        "$defs": {"d": {"const": 4}},
        "enum": [{"const": 5}],
    }
    assert sorted(node["const"] for node in every(schema) if "const" in node) == [1, 2, 3, 4]


def test_a_plain_schema_is_not_recursive() -> None:
    """Two uses of one definition are not a recursion."""
    schema = {
        "$defs": {"a": {"type": "string"}},
        "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/a"}},
    }
    assert unfold(schema).recursions == 0


def test_pointers_are_escaped() -> None:
    """Tilde and slash in names are escaped as RFC 6901 says."""
    assert pointer(["a/b", "~", 0]) == "/a~1b/~0/0"
