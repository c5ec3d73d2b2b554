"""What a model wrote amiss: calls that do not fit the tools, calls that stayed text."""

import msgspec
import pytest

from treadle.core.items import CallItem, ReasoningItem, text_message
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.decoding.call_faults import ARGUMENTS_CHARS_MAX, call_faults, item_faults

BOOK = b'{"type":"object","properties":{"seats":{"type":"integer"},"name":{"type":"string"}},"required":["seats"]}'
CLOCK = b'{"type":"object","properties":{"zone":{"type":"string"}},"required":["zone"]}'
SPECS = {
    "book": ToolSpec(name="book", parameters=msgspec.Raw(BOOK)),
    "clock": ToolSpec(name="clock", parameters=msgspec.Raw(CLOCK)),
    "any": ToolSpec(name="any"),
    "odd": ToolSpec(name="odd", parameters=msgspec.Raw(b'{"properties":5}')),
    "free": ToolSpec(name="free", kind="custom"),
}


def faults(name: str, arguments: str) -> list[str]:
    """Return the codes of a call."""
    call = CallItem(call_id="c", name=name, arguments=arguments)
    return [code for code, _ in call_faults(call, SPECS)]


@pytest.mark.parametrize(
    ("name", "arguments", "codes"),
    [
        ("book", '{"seats":2}', []),
        ("book", '{"seats":2,"extra":1}', []),
        ("any", "{}", []),
        ("any", '{"x":"5"}', []),
        ("odd", '{"x":"5"}', []),
        ("free", "anything", []),
        ("rm", "{}", ["invented_tool"]),
        ("book", "{}", ["blank_arguments"]),
        ("book", '```json\n{"seats":2}\n```', ["fenced_arguments"]),
        ("book", '{"seats":2}"', ["trailing_quotes"]),
        ("any", '{}"}', ["trailing_quotes"]),
        ("book", '{"seats":1} {"seats":2}', ["several_objects"]),
        ("book", '{"seats":', []),
        ("book", "[]", []),
        ("book", '{"zone":"CET"}', ["arguments_of_another"]),
        ("book", '{"nothing":"CET"}', []),
        ("book", '{"seats":" 2 "}', ["number_as_text"]),
        ("book", '{"seats":"two"}', []),
        ("book", '{"seats":"2","name":"x"}', ["number_as_text"]),
        ("book", '{"seats":1,"name":"2"}', []),
        ("book", '{"seats":"' + "1" * 40 + '"}', []),
        ("book", '{"seats":"2","name":"' + "x" * ARGUMENTS_CHARS_MAX + '"}', []),
    ],
)
def test_each_fault_of_a_call_has_its_code(name: str, arguments: str, codes: list[str]) -> None:
    """What fits has none; what is too long is left to the tool."""
    assert faults(name, arguments) == codes


def test_without_tools_nothing_is_judged() -> None:
    """A call of an earlier turn's tool may come though none is offered; free text is nobody's arguments."""
    assert call_faults(CallItem(call_id="c", name="x", arguments="{}"), {}) == []
    assert call_faults(CallItem(call_id="c", name="free", arguments="}", kind="custom"), SPECS) == []


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", []),
        ("plain words", []),
        ("a < b and c[0]", []),
        ('<tool_call>{"name":"f"}</tool_call>', ["dialect_text"]),
        ("[TOOL_CALLS] [{}]", ["dialect_text"]),
        ("<function=f>", ["dialect_text"]),
        ('<invoke name="f">', ["dialect_text"]),
        ("so</think>yes", ["stray_end_think"]),
        ("</think><tool_call>", ["dialect_text", "stray_end_think"]),
        ("look:\n```\n<tool_call>\n```\n", []),
        ("look:\n```\n<tool_call>", []),
    ],
)
def test_calls_and_ends_of_thinking_in_a_text_are_told(text: str, codes: list[str]) -> None:
    """Not those in a code fence, which are shown on purpose."""
    assert [code for code, _ in item_faults(text_message("assistant", text))] == codes


def test_a_call_among_the_thoughts_is_told_as_one() -> None:
    """In summaries too; an end of thinking belongs there."""
    assert [code for code, _ in item_faults(ReasoningItem(text=("<tool_call>",)))] == ["dialect_thought"]
    assert [code for code, _ in item_faults(ReasoningItem(summary=("<function=f>",)))] == ["dialect_thought"]
    assert item_faults(ReasoningItem(text=("</think>",))) == []
