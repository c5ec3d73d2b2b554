"""Schemas of tools in the form of each upstream: the same meaning, nothing lost without a note, bounded."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.json import read_json, write_json
from treadle.core.request import Note
from treadle.protocols.translation import schema_adaptation as schemas
from treadle.protocols.translation import schema_subset as subset
from treadle.protocols.translation.schema_adaptation import ANSWER_BYTES_MAX, NODES_MAX, Schemas
from treadle.protocols.translation.schema_forms import SUBSETS, TYPES, breadth, merge, step
from treadle.protocols.translation_notes import Notes
from unit.protocols.work import steps_run

STRING = {"type": "string"}
ANY = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "object"}]}


def convert(schema: Any, form: str = "json_schema", *, is_tool: bool = True) -> tuple[Any, tuple[Note, ...]]:
    """Return the schema in that form, and the notes."""
    notes = Notes()
    raw = schema if isinstance(schema, bytes) else write_json(schema)
    written = Schemas(form, notes).write(msgspec.Raw(raw), "tools[0].parameters", is_tool=is_tool)  # type: ignore[arg-type]
    return read_json(bytes(written)), notes.all()


def of(node: Any, form: str, **top: Any) -> tuple[Any, dict[str, tuple[str, str | None]]]:
    """Return a property's schema in that form, and each note's action and field by its code."""
    written, notes = convert({"type": "object", "properties": {"x": node}, **top}, form)
    return written["properties"]["x"], {note.code: (note.action, note.field) for note in notes}


AT_X = "tools[0].parameters#/properties/x"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"object","properties":{}}',
        b'{ "properties": {"a": {"$ref": "#/$defs/A"}}, "type": "object", "$defs": {"A": {"type": ["null"]}} }',
        b'{"type":"object","properties":{"a":{"oneOf":[{"const":1},true],"pattern":"^a"}},"additionalProperties":false}',
        b'{"type":"object","properties":{"l":{"type":"array","items":{}}},"$schema":"x"}',
    ],
)
def test_a_good_schema_stays_the_same_bytes(raw):
    """Where all of JSON Schema is taken, nothing is read twice and nothing is spelled anew."""
    notes = Notes()
    assert bytes(Schemas("json_schema", notes).write(msgspec.Raw(raw), "p")) == raw
    assert notes.all() == ()


@pytest.mark.parametrize(
    ("node", "mended"),
    [
        ({"type": "STRING"}, STRING),
        ({"type": ["STRING", "NULL"]}, {"type": ["string", "null"]}),
        ({"type": "STRING", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "string", "nullable": False}, STRING),
        ({"anyOf": [STRING], "nullable": True}, {"anyOf": [STRING, {"type": "null"}]}),
        ({"type": "TYPE_UNSPECIFIED"}, {}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 1}),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": False}, {"type": "number", "maximum": 1}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "items": [STRING]}, {"type": "array", "prefixItems": [STRING]}),
        (
            {"type": "OBJECT", "properties": {"type": {"type": "ARRAY"}}, "enum": ["STRING"]},
            {"type": "object", "properties": {"type": {"type": "array", "items": {}}}, "enum": ["STRING"]},
        ),
    ],
)
def test_stray_spellings_are_mended_for_every_upstream(node, mended):
    """Gemini's upper-case types, OpenAPI's nullable and draft-04 bounds are no JSON Schema 2020-12."""
    assert of(node, "json_schema") == (mended, {})


@pytest.mark.parametrize("ref", ["https://example.org/x.json", "file:///etc/passwd", "#/$defs/Missing", 5])
@pytest.mark.parametrize("form", ["json_schema", "gemini", "openapi"])
def test_a_reference_to_elsewhere_is_never_followed(ref, form):
    """What is not in the schema itself is left out, and said."""
    schema = {"type": "object", "properties": {"x": {"$ref": ref, "type": "STRING"}}}
    written, notes = convert(schema, form)
    assert written["properties"]["x"] == STRING
    assert [(note.code, note.action, note.field) for note in notes] == [("schema_ref", "dropped", AT_X)]


@pytest.mark.parametrize("form", ["json_schema", "gemini", "openapi"])
@pytest.mark.parametrize(
    ("top", "code"),
    [
        (True, None),
        (False, "schema_top"),
        ([], "schema_top"),
        ({}, None),
        ({"type": ["object", "null"]}, None),
        ({"type": "string"}, "schema_top"),
        ({"type": "object", "properties": 5}, None),
        (b"[" * 500 + b"]" * 500, "schema_top"),
    ],
)
def test_the_top_is_always_a_plain_object(top, code, form):
    """A tool takes an object, whatever its schema says."""
    written, notes = convert(top, form)
    assert written == {"type": "object", "properties": {}}
    assert [note.code for note in notes] == ([code] if code else [])


@pytest.mark.parametrize("form", ["json_schema", "gemini"])
def test_unions_at_the_top_become_one_object(form):
    """OpenAI and Anthropic refuse anyOf, oneOf and allOf there; required is what every alternative requires."""
    schema = {
        "anyOf": [
            {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a", "b"]},
            {"$ref": "#/$defs/C"},
        ],
        "allOf": [{"properties": {"d": STRING}, "required": ["d"]}],
        "required": ["e"],
        "properties": {"e": STRING},
        "$defs": {"C": {"properties": {"c": STRING, "b": STRING}, "required": ["b", "c"]}},
    }
    written, notes = convert(schema, form)
    assert set(written["properties"]) == {"a", "b", "c", "d", "e"}
    assert sorted(written["required"]) == ["b", "d", "e"]
    assert not {"anyOf", "allOf", "$ref"} & written.keys()
    assert [note.code for note in notes] == ["schema_union"]


def test_a_reference_at_the_top_is_written_out():
    """Pydantic writes recursive models so."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}
    written, _ = convert({"$ref": "#/$defs/N", "$defs": {"N": node}})
    assert written == {**node, "$defs": {"N": node}}


@pytest.mark.parametrize("form", ["gemini", "openapi"])
@pytest.mark.parametrize(
    ("node", "written", "codes"),
    [
        ({"const": "a"}, {"type": "string", "enum": ["a"]}, {}),
        ({"oneOf": [STRING, {"type": "integer"}]}, {"anyOf": [STRING, {"type": "integer"}]}, {"schema_one_of"}),
        ({"anyOf": [STRING]}, STRING, {}),
        ({"anyOf": [STRING, False]}, STRING, {}),
        ({"type": ["string", "integer"], "minLength": 1, "minimum": 2, "description": "d"}, None, None),
        ({}, ANY, {"schema_typeless"}),
        (True, ANY, {"schema_typeless"}),
        ({"properties": {"a": STRING}}, {"type": "object", "properties": {"a": STRING}}, {}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}, {}),
        ({"minimum": 1}, {"type": "number", "minimum": 1}, {}),
        ({"type": "array"}, {"type": "array", "items": ANY}, {"schema_typeless"}),
        ({"type": "null"}, {"type": "null"}, {}),
        ({"const": None}, {"type": "null", "enum": [None]}, None),
        (
            {"allOf": [{"type": "object", "properties": {"a": STRING}}, {"required": ["a"]}]},
            {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
            {},
        ),
        (
            {"type": "object", "properties": {"a": STRING}, "required": ["a", "ghost"]},
            {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
            {"schema_required"},
        ),
        (
            {"type": "object", "properties": {"a": False, "b": STRING}},
            {"type": "object", "properties": {"b": STRING}},
            {"schema_keyword"},
        ),
        ({"type": "string", "$comment": "c", "$id": "i"}, STRING, {"schema_meta"}),
        ({"type": "string", "not": {"enum": ["a"]}}, STRING, {"schema_keyword"}),
        (
            {"type": "integer", "multipleOf": 5, "description": "d"},
            {"type": "integer", "description": "d [multipleOf: 5]"},
            {"schema_words"},
        ),
    ],
)
def test_a_subset_says_the_same_with_what_it_knows(node, written, codes, form):
    """Each keyword is kept, spelled otherwise, put into words, or dropped with a note."""
    got, notes = of(node, form)
    if written is not None and not (form == "openapi" and node == {"const": None}):
        assert got == written
    if codes is not None:
        assert set(notes) == set(codes)


def test_null_is_said_as_each_subset_says_it():
    """Three ways in, two ways out."""
    for node in (
        {"type": ["string", "null"]},
        {"anyOf": [STRING, {"type": "null"}]},
        {"type": "string", "nullable": True},
    ):
        assert of(node, "gemini") == ({"type": ["string", "null"]}, {})
        assert of(node, "openapi") == ({"type": "string", "nullable": True}, {})
    several = {"anyOf": [STRING, {"type": "integer"}, {"type": "null"}]}
    assert of(several, "gemini") == (several, {})
    assert of(several, "openapi") == (
        {"anyOf": [{"type": "string", "nullable": True}, {"type": "integer", "nullable": True}]},
        {},
    )
    assert of({"enum": ["a", None]}, "openapi") == ({"type": "string", "enum": ["a"], "nullable": True}, {})


def test_types_in_a_list_keep_what_is_about_each_of_them():
    """A bound of numbers goes with the number, a length with the string, the description with both."""
    node = {"type": ["string", "integer"], "maxLength": 3, "minimum": 2, "description": "d"}
    written, _ = of(node, "openapi")
    assert written == {
        "anyOf": [
            {"description": "d", "type": "string", "maxLength": 3},
            {"description": "d", "type": "integer", "minimum": 2},
        ]
    }


def test_what_stands_beside_a_union_goes_into_each_branch():
    """Gemini takes nothing beside anyOf."""
    node = {
        "type": "object",
        "description": "d",
        "properties": {"a": STRING, "b": STRING},
        "anyOf": [{"required": ["a"]}, {"required": ["b"], "description": "own"}],
    }
    both = {"type": "object", "properties": {"a": STRING, "b": STRING}}
    assert of(node, "gemini")[0] == {
        "anyOf": [
            {"description": "d", **both, "required": ["a"]},
            {"description": "own", **both, "required": ["b"]},
        ]
    }


def test_keywords_of_one_subset_only():
    """The OpenAPI subset knows lengths and no maps, Gemini's JSON Schema maps and tuples and no lengths."""
    node = {"type": "string", "minLength": 1, "format": "email", "default": "a"}
    assert of(node, "openapi") == (
        {"type": "string", "minLength": 1, "default": "a", "description": '[format: "email"]'},
        {"schema_words": ("emulated", f"{AT_X}/format")},
    )
    assert of(node, "gemini")[0] == {
        "type": "string",
        "format": "email",
        "description": '[minLength: 1; default: "a"]',
    }
    table = {"type": "object", "additionalProperties": {"type": "INTEGER"}}
    assert of(table, "gemini") == ({"type": "object", "additionalProperties": {"type": "integer"}}, {})
    assert of(table, "openapi") == (
        {"type": "object"},
        {"schema_keyword": ("dropped", f"{AT_X}/additionalProperties")},
    )
    pair = {"type": "array", "prefixItems": [STRING, {"type": "integer"}]}
    assert of(pair, "gemini") == (pair, {})
    assert of(pair, "openapi") == (
        {"type": "array", "items": {"anyOf": [STRING, {"type": "integer"}]}, "minItems": 2, "maxItems": 2},
        {"schema_tuple": ("coerced", AT_X)},
    )
    assert of({"enum": [1, 2]}, "openapi")[0] == {"type": "number", "description": "[enum: [1,2]]"}
    assert of({"enum": [1, 2]}, "gemini")[0] == {"type": "number", "enum": [1, 2]}
    assert of({"enum": ["", "a"]}, "openapi")[0] == {"type": "string", "enum": ["a"]}


@pytest.mark.parametrize("form", ["gemini", "openapi"])
def test_a_circle_is_cut_once_and_said(form):
    """A schema that holds itself becomes any object at the place where it would begin again."""
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T", "description": "l"}, "v": STRING}}
    written, notes = of({"$ref": "#/$defs/T"}, form, **{"$defs": {"T": tree}})
    assert written == {
        "type": "object",
        "properties": {"left": {"type": "object", "description": "l"}, "v": STRING},
    }
    assert notes == {"schema_cycle": ("coerced", f"{AT_X}/properties/left")}


@pytest.mark.parametrize("ref", ["#", "#/properties/x", "#/$defs/A"])
def test_circles_without_any_step_end(ref):
    """References that only name each other do not loop."""
    schema = {"type": "object", "properties": {"x": {"$ref": ref}}, "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}}
    written, notes = convert(schema, "gemini")
    assert written["type"] == "object"
    assert "schema_cycle" in {note.code for note in notes}


def bomb(levels: int, width: int) -> dict[str, Any]:
    """Return a schema whose references would grow by `width` at every level."""
    defs: dict[str, Any] = {
        f"L{level}": {
            "type": "object",
            "properties": {f"p{n}": {"$ref": f"#/$defs/L{level + 1}"} for n in range(width)},
        }
        for level in range(levels)
    }
    defs[f"L{levels}"] = {"type": "string", "enum": ["v" * 50] * 500, "description": "d" * 5000}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/L0"}}, "$defs": defs}


@pytest.mark.parametrize(("levels", "width"), [(20, 2), (3, 200), (1, 5000)])
@pytest.mark.parametrize("form", ["gemini", "openapi"])
def test_a_bomb_is_bounded(levels, width, form):
    """What would grow without end is cut to any object, and said; the output stays of a size that can be sent."""
    written, notes = convert(bomb(levels, width), form)
    assert len(write_json(written)) < 8_000_000
    assert "schema_cut" in {note.code for note in notes}


def test_many_losses_are_one_note():
    """A schema with a thousand unknown keywords does not make a thousand notes."""
    properties = {f"p{number}": {"type": "string", "not": {}} for number in range(1000)}
    _, notes = convert({"type": "object", "properties": properties}, "gemini")
    (note,) = notes
    assert (note.code, note.count, note.field) == ("schema_keyword", 1000, "tools[0].parameters#/properties/p0/not")
    assert note.message.endswith("#/properties/p7/not and 992 more")


def test_a_pointer_escapes_its_steps():
    """A name with a slash names one step."""
    _, notes = convert({"type": "object", "properties": {"a/b~c": {"$ref": "x:"}}}, "gemini")
    assert notes[0].field == "tools[0].parameters#/properties/a~1b~0c"


def test_the_schema_of_an_answer_may_be_of_any_type():
    """Only tools take objects; upper-case types are mended there too."""
    assert convert({"type": "ARRAY", "items": {"type": "OBJECT"}}, is_tool=False) == (
        {"type": "array", "items": {"type": "object"}},
        (),
    )
    assert convert({"type": ["string", "null"]}, "gemini", is_tool=False)[0] == {"type": ["string", "null"]}


SCHEMAS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["string", "OBJECT", "#/$defs/a", "#", "", "array"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "anyOf",
                    "oneOf",
                    "allOf",
                    "$ref",
                    "$defs",
                    "enum",
                    "const",
                    "required",
                    "nullable",
                    "additionalProperties",
                    "prefixItems",
                    "not",
                    "description",
                    "a",
                    "format",
                    "minimum",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


def is_of(node: Any, form: str) -> bool:
    """Tell whether a written node, and every node in it, keeps to its subset."""
    assert isinstance(node, dict)
    kinds = node.get("type", [])
    assert node.keys() <= SUBSETS[form].keywords
    assert set([kinds] if isinstance(kinds, str) else kinds) <= TYPES
    assert ("type" in node) != ("anyOf" in node)
    inner = [*node.get("anyOf", ()), *node.get("properties", {}).values(), *node.get("prefixItems", ())]
    inner += [node[key] for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)]
    assert set(node.get("required", ())) <= node.get("properties", {}).keys()
    return all(is_of(child, form) for child in inner)


@given(SCHEMAS, st.sampled_from(["gemini", "openapi"]))
def test_anything_at_all_becomes_a_schema_of_the_subset(schema, form):
    """However broken a schema is, what is written keeps to the form."""
    written, _ = convert(schema, form)
    assert is_of(written, form)


@given(SCHEMAS)
def test_anything_at_all_becomes_a_plain_object(schema):
    """Also where all of JSON Schema is taken, the top is an object with properties."""
    written, _ = convert(schema)
    assert written["type"] == "object"
    assert isinstance(written["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "$ref", "enum", "const", "not"} & written.keys()


WIDE: dict[str, Any] = {f"x-{number}": number for number in range(1000)}


@pytest.mark.parametrize(
    "node",
    [
        {"anyOf": [{"type": "object"}] * 2000, **WIDE},
        {"items": [{"$ref": "#/$defs/wide"}] * 2000},
    ],
)
def test_merging_is_charged_to_the_budget(node, monkeypatch):
    """What stands beside alternatives, or behind a reference, is not copied for ever; the rest is any object."""
    copied = 0

    def counting(*nodes: Any, **how: Any) -> Any:
        nonlocal copied
        copied += sum(map(breadth, nodes))
        return merge(*nodes, **how)

    monkeypatch.setattr(subset, "merge", counting)
    monkeypatch.setattr(schemas, "merge", counting)
    _, notes = convert({"type": "object", "properties": {"x": node}, "$defs": {"wide": WIDE}}, "gemini", is_tool=False)
    assert copied < 2 * NODES_MAX
    assert "schema_cut" in {note.code for note in notes}


@pytest.mark.parametrize("form", ["json_schema", "gemini"])
def test_a_union_at_the_top_is_joined_in_one_go(form, monkeypatch):
    """Many alternatives are merged once; what is over the budget is left out and said."""
    calls: list[int] = []
    monkeypatch.setattr(schemas, "merge", lambda *nodes, **how: calls.append(len(nodes)) or merge(*nodes, **how))
    written, _ = convert({"anyOf": [{"properties": {f"a{n}": STRING}} for n in range(300)]}, form)
    assert len(written["properties"]) == 300
    assert calls == [301]
    bomb_at_top = {"anyOf": [{"$ref": "#/$defs/w"}] * 2000, "$defs": {"w": {"properties": dict.fromkeys(WIDE, STRING)}}}
    written, notes = convert(bomb_at_top, form)
    assert (written["type"], written.get("properties", {})) == ("object", {})
    assert "schema_cut" in {note.code for note in notes}
    assert calls == [301]


def test_a_merge_keeps_the_order_and_the_last_word():
    """What stands nearest to a property says most about it."""
    nodes = (
        {"description": "a", "properties": {"p": 1, "q": 1}, "required": ["p", [], "q"]},
        {"title": "t", "description": "b", "properties": {"q": 2}, "required": ["q", "r"]},
        {"title": "u"},
    )
    assert merge(*nodes) == {
        "description": "b",
        "properties": {"p": 1, "q": 2},
        "required": ["p", "q", "r"],
        "title": "u",
    }


def test_a_long_key_is_not_repeated_for_every_node_in_it():
    """Pointers show its beginning."""
    assert step("#", "k" * 400_000) == f"#/{'k' * 64}…"
    assert step("#", "k" * 64) == f"#/{'k' * 64}"
    assert step("#", "a/b~c") == "#/a~1b~0c"


@pytest.mark.parametrize("index", ["9" * 5000, "1", "-1", "x"])
def test_a_reference_to_no_place_of_a_list_leads_nowhere(index):
    """Also one with more digits than Python reads."""
    _, codes = of({"$ref": f"#/prefixItems/{index}"}, "gemini", prefixItems=[STRING])
    assert codes["schema_ref"] == ("dropped", AT_X)
    assert of({"$ref": "#/prefixItems/0"}, "gemini", prefixItems=[STRING])[0] == STRING


def test_a_large_schema_of_an_answer_becomes_any_object():
    """It is taken as it is where nothing has to be written anew."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "d" * ANSWER_BYTES_MAX}}}
    written, notes = convert(schema, "gemini", is_tool=False)
    assert written == {"type": "object"}
    assert [(note.code, note.action) for note in notes] == [("schema_cut", "dropped")]
    assert convert(schema, "json_schema", is_tool=False) == (schema, ())


REFS = {"A": {"type": "object", "properties": {"a": STRING}, "required": ["a"]}, "B": {"properties": {"b": STRING}}}
BOTH = {"type": "object", "properties": {"b": STRING, "a": STRING}, "required": ["a"]}


@pytest.mark.parametrize("form", ["gemini", "openapi"])
@pytest.mark.parametrize(
    "node",
    [
        {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
        {"$ref": "#/$defs/A", "allOf": [{"$ref": "#/$defs/B"}]},
        {"allOf": [{"allOf": [{"$ref": "#/$defs/A"}]}, {"allOf": [{"$ref": "#/$defs/B"}]}]},
        {"$ref": "#/$defs/C"},
        {"allOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]},
    ],
)
def test_every_reference_of_all_of_is_written_out(node, form):
    """Also those that several parts name, which are no circle."""
    both = {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
    written, notes = of(node, form, **{"$defs": {**REFS, "C": both}})
    assert written == BOTH
    assert notes == {}


@pytest.mark.parametrize("form", ["json_schema", "gemini"])
def test_every_reference_of_all_of_at_the_top_is_written_out(form):
    """Where references may stand they may also stay, below the top."""
    written, notes = convert({"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": REFS}, form)
    assert set(written["properties"]) == {"a", "b"}
    assert written["required"] == ["a"]
    assert notes == ()


def test_a_circle_in_one_part_leaves_the_others():
    """What can be said is said."""
    tree = {"type": "object", "properties": {"n": {"allOf": [{"$ref": "#/$defs/T"}, {"$ref": "#/$defs/A"}]}}}
    written, notes = of({"$ref": "#/$defs/T"}, "gemini", **{"$defs": {**REFS, "T": tree}})
    assert written["properties"]["n"] == REFS["A"]
    assert notes == {"schema_cycle": ("coerced", f"{AT_X}/properties/n")}


def test_demands_of_all_of_are_narrowed_and_what_clashes_is_said():
    """Of two bounds the narrower counts, of two enums what both have; two patterns cannot be one."""
    parts = [
        {"type": "number", "minimum": 1, "maximum": 9, "pattern": "a", "enum": [1, 2]},
        {"type": "integer", "minimum": 3, "maximum": 5, "pattern": "b", "enum": [2, 3]},
    ]
    written, notes = of({"allOf": parts, "description": "own"}, "gemini")
    assert written == {
        "type": "integer",
        "minimum": 3,
        "maximum": 5,
        "enum": [2],
        "description": 'own [pattern: "a"]',
    }
    assert notes["schema_all_of"] == ("dropped", f"{AT_X}/pattern")


def test_properties_of_one_name_are_joined():
    """All of them where all must hold, any of them where one of several objects is meant."""
    one, two = {"type": "string", "enum": ["one"]}, {"type": "string", "enum": ["two"]}
    kinds = [{"type": "object", "properties": {"kind": kind}, "required": ["kind"]} for kind in (one, two)]
    written, _ = convert({"anyOf": kinds}, "gemini")
    assert written["properties"]["kind"] == {"anyOf": [one, two]}
    long, short = {"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 3}
    node = {"allOf": [{"properties": {"p": long}}, {"properties": {"p": short}}]}
    assert of(node, "openapi")[0]["properties"]["p"] == short
    lists = {"allOf": [{"items": long}, {"items": short}, {"minItems": 1}]}
    assert of(lists, "openapi")[0] == {"type": "array", "items": short, "minItems": 1}
    closed = {"allOf": [{"additionalProperties": False}, {"additionalProperties": STRING, "properties": {}}]}
    assert of(closed, "gemini")[0] == {"type": "object", "additionalProperties": False, "properties": {}}


@pytest.mark.parametrize("form", ["gemini", "openapi"])
def test_a_typeless_node_keeps_its_words(form):
    """They stand in every alternative, because nothing may stand beside anyOf."""
    written, notes = of({"description": "d", "title": "t", "enum": [1, "a"], "default": 1}, form)
    assert {(branch["title"], branch["description"]) for branch in written["anyOf"]} == {
        ("t", 'd [enum: [1,"a"]; default: 1]')
    }
    assert set(notes) == {"schema_typeless", "schema_words"}


def test_types_that_are_none_are_dropped_with_a_note():
    """Also where there are thousands of them."""
    node = {"type": ["string", "file", 5], "maxLength": 3}
    assert of(node, "openapi") == (
        {"type": "string", "maxLength": 3},
        {"schema_type": ("dropped", f"{AT_X}/type")},
    )
    beside = {"type": ["string", "integer"], "anyOf": [{"minimum": 1}, {"maxLength": 3}]}
    assert of(beside, "openapi")[1]["schema_type"] == ("dropped", f"{AT_X}/type")


def many(count: int) -> dict[str, Any]:
    """Return nodes whose work would be quadratic if it were done carelessly."""
    refs = [{"$ref": f"#/$defs/D{number % 7}"} for number in range(count)]
    return {
        "types": {"type": [f"t{number}" for number in range(count)], **{f"k{number}": 1 for number in range(count)}},
        "all_of": {"allOf": refs},
        "inner": {"allOf": [{"items": {"type": "string"}} for _ in range(count)]},
        "properties": {"allOf": [{"properties": {"p": {"type": "string"}}} for _ in range(count)]},
        "enums": {"allOf": [{"enum": list(range(count))}, {"enum": list(range(count))}]},
        "any_of": {"anyOf": [{"type": "string"}] * count},
        "chain": {"anyOf": [{"oneOf": [{"const": number}, {"type": "null"}]} for number in range(count)]},
    }


@pytest.mark.parametrize("shape", many(1))
@pytest.mark.parametrize("form", ["gemini", "openapi"])
def test_the_work_is_linear(shape, form):
    """Twice the schema costs about twice the work."""
    defs = {f"D{number}": {"properties": {f"p{number}": STRING}} for number in range(7)}

    def cost(count: int) -> int:
        return steps_run(lambda: of(many(count)[shape], form, **{"$defs": defs}))

    assert cost(800) < 2.5 * cost(400)


NUMBERS = st.integers(1_000, 9_999_999)
KEYWORDS = st.sampled_from(
    ["minimum", "maximum", "minLength", "maxItems", "multipleOf", "const", "default", "x-own", "exclusiveMinimum"]
)
LEAVES = st.dictionaries(KEYWORDS, NUMBERS, max_size=3) | st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "array", "object"])},
    optional={"minimum": NUMBERS, "maxLength": NUMBERS, "not": st.fixed_dictionaries({"const": NUMBERS})},
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("pqr"), inner, max_size=3)}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3), "description": st.just("d")}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"items": inner, "type": st.just("array")}),
    ),
    max_leaves=12,
)


def said(value: Any) -> set[int]:
    """Return the numbers that a schema says anywhere, also in words."""
    return {int(number) for number in re.findall(r"(?<!\d)\d{4,}", write_json(value).decode())}


@given(TREES, st.sampled_from(["gemini", "openapi"]))
def test_what_is_lost_of_a_schema_is_noted(tree, form):
    """Every number of a sound schema arrives, or a note counts what was left out or narrowed."""
    written, notes = of(tree, form)
    lost = said(tree) - said(written)
    assert not lost or notes or _is_narrowed(tree)


def _is_narrowed(tree: Any) -> bool:
    """Tell whether there is an allOf, which keeps the narrower of two bounds and loses nothing by it."""
    return b'"allOf"' in write_json(tree)


def test_alternatives_at_the_top_keep_what_stands_beside_their_references():
    """What one of them demands is not demanded of all."""
    schema = {
        "oneOf": [
            {"$ref": "#/$defs/A", "required": ["x"], "properties": {"x": STRING}},
            {"allOf": [{"$ref": "#/$defs/B"}, {"required": ["b"]}]},
            {"$ref": "#/nowhere"},
        ],
        "$defs": REFS,
    }
    written, notes = convert(schema)
    assert (set(written["properties"]), written.get("required", [])) == ({"a", "b", "x"}, [])
    assert {note.code for note in notes} == {"schema_union", "schema_ref"}


@pytest.mark.parametrize(
    ("before", "after", "kept", "clashes"),
    [
        ({"const": [1]}, {"const": [2]}, {"const": [2]}, {"const"}),
        ({"const": {"a": 1}}, {"const": 1}, {"const": 1}, {"const"}),
        ({"pattern": "a"}, {"pattern": "b"}, {"pattern": "b"}, {"pattern"}),
        ({"pattern": "a"}, {"pattern": "a"}, {"pattern": "a"}, set()),
        ({"title": "a"}, {"title": "b"}, {"title": "b"}, set()),
        ({"minimum": 1}, {"minimum": True}, {"minimum": True}, set()),
        ({"minimum": 3}, {"minimum": 1}, {"minimum": 3}, set()),
        ({"maximum": 3}, {"maximum": 1}, {"maximum": 1}, set()),
        ({"type": "integer"}, {"type": "number"}, {"type": "integer"}, set()),
        ({"type": "integer"}, {"type": "string"}, {"type": "string"}, {"type"}),
        ({"enum": [1]}, {"enum": [2]}, {"enum": [2]}, set()),
    ],
)
def test_of_two_demands_one_is_kept_and_a_clash_is_said(before, after, kept, clashes):
    """The last word wins, of bounds the narrower one; whoever merges can tell what was given up."""
    said: set[str] = set()
    assert merge(before, after, clashes=said) == kept
    assert said == clashes


def test_schemas_that_are_only_true_or_false_stay_where_others_are_mended():
    """They say all there is to say."""
    node = {"type": "OBJECT", "properties": {"a": True, "b": {"type": "STRING"}}, "additionalProperties": False}
    assert of(node, "json_schema")[0] == {
        "type": "object",
        "properties": {"a": True, "b": STRING},
        "additionalProperties": False,
    }
    assert of({"anyOf": [False, {"type": "STRING"}]}, "json_schema")[0] == {"anyOf": [False, STRING]}
