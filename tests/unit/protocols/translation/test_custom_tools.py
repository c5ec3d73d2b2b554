"""Custom tools as functions, and their free text out of the arguments again."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.json import read_json
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.translation.custom_tools import FreeInput, Unwrapper, wrapped_input, wrapped_spec

PATCH = '*** Begin Patch\n+\t"quoted" \\ / é 🌍 \u0000 \u2028\n*** End Patch'


def unwrap(arguments: str, cuts: list[int]) -> tuple[str, FreeInput]:
    """Feed the arguments cut at these places; return what was passed on meanwhile, and the end."""
    unwrapper = Unwrapper()
    places = sorted({0, *(min(cut, len(arguments)) for cut in cuts), len(arguments)})
    passed = "".join(unwrapper.feed(arguments[a:b]) for a, b in pairwise(places))
    return passed, unwrapper.finish()


@given(st.text(), st.lists(st.integers(0, 200)), st.booleans())
def test_any_text_comes_back_at_any_cuts(text, cuts, escapes):
    r"""Also where every character is written as \uXXXX and pairs are cut between deltas."""
    pairs = text.encode("utf-16-be")
    spelled = "".join(f"\\u{pairs[i]:02x}{pairs[i + 1]:02x}" for i in range(0, len(pairs), 2))
    arguments = f'{{"input":"{spelled}"}}' if escapes else wrapped_input(text)
    passed, end = unwrap(arguments, cuts)
    assert passed + end.rest == text
    assert end == FreeInput(text=text, rest=end.rest)


def test_text_is_passed_on_as_it_comes():
    """A delta is told when it arrives, not at the end."""
    unwrapper = Unwrapper()
    assert [unwrapper.feed(piece) for piece in ('{"in', 'put": "ab', "c\\", "nd", '"', "}")] == [
        "",
        "ab",
        "c",
        "\nd",
        "",
        "",
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_patch_survives_every_chunk_size(size):
    """Quotes, backslashes, controls and emoji are unescaped across the cuts."""
    arguments = wrapped_input(PATCH)
    passed, end = unwrap(arguments, list(range(0, len(arguments), size)))
    assert (passed, end.text, end.is_clean) == (PATCH, PATCH, True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"cut he', "cut he"),
        ('{"input":"cut \\u00', "cut "),
        ('{"input":"half \\ud83d', "half \ufffd"),
        ('{"inp', ""),
        ("", ""),
        ("{}", ""),
        ('{"patch":"other key"}', "other key"),
        ('{"input":"a","more":1}', "a"),
        ("plain text", "plain text"),
        ('["list"]', '["list"]'),
        ('{"a":1,"b":2}', '{"a":1,"b":2}'),
        ('{"input":5}', '{"input":5}'),
        ('{"input":"bad \\x and \\uZZ escape"}', "bad \\x and \\uZZ escape"),
    ],
)
def test_what_does_not_keep_to_the_wrapping_loses_nothing(arguments, text):
    """Cut text stays cut, other shapes become the text; only good ones count as clean."""
    for cuts in ([], list(range(len(arguments)))):
        passed, end = unwrap(arguments, cuts)
        assert end.text == text
        assert passed + end.rest == text
        assert end.is_clean is arguments.endswith('escape"}')


def test_another_order_of_fields_is_clean():
    """A model that writes a field before `input` is still understood whole."""
    assert unwrap('{"note":"n","input":"text"}', [3])[1] == FreeInput(text="text", rest="text")


def test_white_space_without_end_is_not_held_as_a_head():
    """What comes before the text is bounded."""
    arguments = " " * 10_000 + wrapped_input("x")
    assert unwrap(arguments, list(range(0, 10_000, 100)))[1] == FreeInput(text="x", rest="x")


def spec(format_json: bytes | None) -> ToolSpec:
    """Return a custom tool of that format."""
    return ToolSpec(
        name="exec",
        kind="custom",
        description="Run it.",
        format=None if format_json is None else msgspec.Raw(format_json),
    )


@pytest.mark.parametrize(
    ("format_json", "described"),
    [
        (None, "Run it.\n\n`input` is free text."),
        (b'{"type":"text"}', "Run it.\n\n`input` is free text."),
        (
            b'{"type":"grammar","syntax":"lark","definition":"start: /a  b/"}',
            "Run it.\n\n`input` must follow this lark grammar:\nstart: /a  b/",
        ),
        (b'{"type":"other","x":1}', 'Run it.\n\nFormat of `input`: {"type":"other","x":1}'),
        (b'{"type":1}', 'Run it.\n\nFormat of `input`: {"type":1}'),
    ],
)
def test_a_custom_tool_becomes_a_function_of_one_string(format_json, described):
    """The grammar goes into the description, exactly."""
    wrapped = wrapped_spec(spec(format_json))
    assert (wrapped.kind, wrapped.format, wrapped.description) == ("function", None, described)
    assert read_json(bytes(wrapped.parameters)) == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
