import msgspec
import pytest

from treadle.core.json import write_json
from treadle.core.tool_definitions import ToolSpec
from treadle.tools.demo_tools import DEMO_TOOLS
from treadle.tools.provider_lint import lint


def spec(schema: object = None, *, name: str = "x", description: str = "Does x.") -> ToolSpec:
    """Return a spec that is fine but for what is given."""
    parameters = msgspec.Raw(write_json(schema or {"type": "object", "properties": {}}))
    return ToolSpec(name=name, description=description, parameters=parameters)


def nested(levels: int) -> dict[str, object]:
    """Return objects in objects."""
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("clean", [spec(), spec(nested(5)), *(tool.spec for tool in DEMO_TOOLS)])
def test_a_simple_tool_has_no_warnings(clean: ToolSpec) -> None:
    """What every provider takes is not complained of."""
    assert lint(clean) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (spec(name="facts.propose"), "name: "),
        (spec(name="x" * 65), "name: 65 characters"),
        (spec(description=" "), "description: empty"),
        (spec(description="x" * 1025), "description: 1025 characters"),
        (spec({"properties": {}}), 'the root must have "type": "object"'),
        (spec({"type": "object", "anyOf": [{}]}), '"anyOf" at the root'),
        (spec({"type": "object", "properties": {"a b": {}}}), 'field name "a b"'),
        (spec({"type": "object", "properties": {"a": {"oneOf": [{}]}}}), '"oneOf"'),
        (spec({"type": "object", "properties": {"a": {"prefixItems": [{}]}}}), '"prefixItems"'),
        (spec({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}), "list of types"),
        (spec({"type": "object", "properties": {"a": {"pattern": "^(?=x)"}}}), "look-around"),
        (spec({"type": "object", "properties": {"a": {"enum": list(range(501))}}}), "enum of 501 values"),
        (spec({"type": "object", "properties": {f"f{n}": {} for n in range(101)}}), "101 fields"),
        (spec(nested(6)), "nests 6 levels"),
        (spec({"type": "object", "properties": {"a": {"$ref": "#"}}}), "recursive"),
        (spec({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/"}}}), "nothing is fetched"),
    ],
)
def test_what_a_provider_cannot_take_is_said(wrong: ToolSpec, words: str) -> None:
    """Each such thing is one warning that names it."""
    [warning] = lint(wrong)
    assert words in warning


def test_a_warning_is_given_once() -> None:
    """The same fault in many fields is one line."""
    fields = {name: {"type": ["string", "null"]} for name in "abc"}
    assert len(lint(spec({"type": "object", "properties": fields}))) == 1
