"""A guest's tool: the nested form, the flat form wrapped, and a refusal with a number for everything else."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.tool_definitions import EMPTY_SCHEMA, ToolSpec
from treadle.wasm.cchat_abi import Errno
from treadle.wasm.cchat_tool_registration import TOOL_JSON_BYTES_MAX, RegistrationRefusal, read_tool

SCHEMA = '{"type":"object", "properties":{"a":{"type":"integer","maximum":1.50}}}'
NESTED = f'{{"type":"function","function":{{"name":"sum","description":"Add.","parameters":{SCHEMA}}}}}'
FLAT = f'{{"name":"sum","description":"Add.","parameters":{SCHEMA}}}'


def plain(spec: ToolSpec | RegistrationRefusal) -> Any:
    """Return the spec with its schema as bytes, so that it can be compared."""
    assert isinstance(spec, ToolSpec), spec
    return {**msgspec.structs.asdict(spec), "parameters": bytes(spec.parameters)}


def test_the_nested_form_is_taken_as_written() -> None:
    """The schema keeps the very bytes of the guest."""
    expected = ToolSpec(name="sum", description="Add.", parameters=msgspec.Raw(SCHEMA.encode()))
    assert plain(read_tool(NESTED.encode())) == plain(expected)


@pytest.mark.parametrize("flat", [FLAT, FLAT.replace("{", '{"type":"function",', 1)])
def test_a_flat_schema_is_wrapped(flat: str) -> None:
    """The legacy form, with or without a type, gives the tool that the nested form gives."""
    assert plain(read_tool(flat.encode())) == plain(read_tool(NESTED.encode()))


def test_a_nested_tool_may_leave_out_what_it_does_not_need() -> None:
    """No description and no parameters: an empty object schema; `strict` is kept."""
    spec = read_tool(b'{"type":"function","function":{"name":"now","strict":true}}')
    assert plain(spec) == plain(ToolSpec(name="now", parameters=EMPTY_SCHEMA, strict=True))


def test_unknown_fields_are_ignored() -> None:
    """Providers add fields; a guest built for a newer one still registers."""
    assert isinstance(read_tool(FLAT.replace("{", '{"future":1,', 1).encode()), ToolSpec)


def test_a_name_is_registered_once() -> None:
    """The second tool of a name is -EEXIST, and the message names it."""
    assert read_tool(NESTED.encode(), {"sum"}) == RegistrationRefusal(
        errno=Errno.EEXIST, message="a tool `sum` is registered already"
    )
    assert isinstance(read_tool(NESTED.encode(), {"other"}), ToolSpec)


@pytest.mark.parametrize("name", ["", "a b", "facts.propose", "é", "a" * 65, "a\n", "a/b"])
def test_a_name_outside_the_charset_is_refused(name: str) -> None:
    """1 to 64 of A-Z a-z 0-9 _ and -."""
    refusal = read_tool(json.dumps({"name": name, "parameters": {}}).encode())
    assert isinstance(refusal, RegistrationRefusal)
    assert refusal.errno is Errno.EINVAL
    assert "is not 1 to 64 of the characters" in refusal.message


BAD = [
    (b"", "Input data was truncated"),
    (b"[]", "a tool is a JSON object"),
    (b'"sum"', "a tool is a JSON object"),
    (b"{}", "Object has neither `function` nor `parameters`"),
    (b'{"name":"sum"}', "Object has neither `function` nor `parameters`"),
    (b'{"name":1,"parameters":{}}', "Expected `str`, got `int` - at `$.name`"),
    (b'{"parameters":{}}', "Object missing required field `name`"),
    (b'{"name":"sum","parameters":[]}', "Expected `object` - at `parameters`"),
    (b'{"name":"sum","parameters":null}', "Expected `object` - at `parameters`"),
    (b'{"name":"sum","parameters":{},"type":"tool"}', "Invalid enum value - at `$.type`"),
    (b'{"function":{"name":"sum"}}', "Object missing required field `type`"),
    (b'{"type":"function","function":"sum"}', "Expected `object`, got `str` - at `$.function`"),
    (b'{"type":"function","function":{"name":"sum","parameters":"x"}}', "Expected `object` - at `parameters`"),
    (b'{"type":"custom","function":{"name":"sum"}}', "Invalid enum value 'custom' - at `$.type`"),
    (b'{"name":"sum","parameters":{"a":NaN}}', "JSON is malformed: invalid character (byte 32)"),
    (b'{"name":"sum","parameters":{}} ,', "JSON is malformed: trailing characters (byte 32)"),
    (b"[" * 60_000, "JSON nests deeper than 64 levels"),
]


@pytest.mark.parametrize(("data", "message"), BAD, ids=[message for _, message in BAD])
def test_what_is_not_a_tool_is_refused_with_a_reason(data: bytes, message: str) -> None:
    """-EINVAL, and the text that `cchat_error` gives says what is wrong and where."""
    assert read_tool(data) == RegistrationRefusal(errno=Errno.EINVAL, message=message)


def test_bytes_that_are_not_utf8_have_a_number_of_their_own() -> None:
    """-EILSEQ, with the offset."""
    assert read_tool(b'{"name":"\xff"}') == RegistrationRefusal(errno=Errno.EILSEQ, message="not UTF-8 at byte 9")


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """An escape that no text can hold must not travel on."""
    refusal = read_tool(b'{"name":"sum","description":"\\ud800 and more text","parameters":{}}')
    assert isinstance(refusal, RegistrationRefusal)
    assert refusal.errno is Errno.EINVAL


def test_a_tool_has_a_size() -> None:
    """Over the bound is -E2BIG, before anything is decoded."""
    data = b" " * (TOOL_JSON_BYTES_MAX + 1)
    assert read_tool(data) == RegistrationRefusal(
        errno=Errno.E2BIG, message="65537 bytes of JSON; at most 65536 are taken"
    )


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    """A guest can send anything; the host gets a tool or a refusal."""
    assert isinstance(read_tool(data), ToolSpec | RegistrationRefusal)
