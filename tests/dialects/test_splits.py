"""What a text is read as does not depend on where it was cut, whatever stands around the call."""

import pytest

from treadle.cli.dialect_rendering import render
from treadle.core.json import read_json
from treadle.protocols.text_calls import read_tools
from treadle.protocols.text_calls.dialect_grammar import Dialect
from treadle.protocols.text_calls.dialect_table import DIALECTS
from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner

TOOLS = read_tools(
    [
        {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        }
    ]
)
CALLS = [("get_weather", {"city": "Paris", "days": 2})]
BEFORE = (
    "",
    " ",
    "   ",
    "    ",
    "\t",
    "\n",
    "\n ",
    "Well.\n",
    "Well.\n  ",
    "Well. ",
    "- ",
    "> ",
    "`a` ",
    "```\n",
    "<|open|>message<|sep|>",
)
BEHIND = ("", "\n", " ", "\nDone.", "<|eom|>", "<|close|>message<|sep|>", "`", "\n```")


def read(pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the visible text and the calls of a text in pieces."""
    scanner = TextScanner(TOOLS, DIALECTS)
    found = [each for piece in pieces for each in scanner.feed(piece)] + scanner.finish()
    text = "".join(each for each in found if isinstance(each, str))
    return text, [(call.name, call.arguments) for each in found if isinstance(each, FoundCalls) for call in each.calls]


def misread(text: str) -> list[int]:
    """Return the places at which cutting a text in two changes what it is read as."""
    whole = read([text])
    wrong = [at for at in range(1, len(text)) if read([text[:at], text[at:]]) != whole]
    return wrong if read([*text]) == whole else [*wrong, -1]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.id)
def test_no_cut_changes_what_a_call_and_its_surroundings_are(dialect: Dialect) -> None:
    """At every place, and one character at a time."""
    call = render(dialect, CALLS)
    texts = [*(before + call for before in BEFORE), *(call + behind for behind in BEHIND)]
    assert {text: wrong for text in texts if (wrong := misread(text))} == {}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<|open|>message<|sep|>Hello<|close|>message<|sep|>", "Hello"),
        ("<|start|>assistant<|message|>Hello<|eom|>", "Hello"),
        ("Hello<|eom|>", "Hello"),
        (
            '<atem:function_calls><atem:invoke name="get_weather"><atem:parameter name="city">Paris</atem:parameter>'
            "</atem:invoke></atem:function_calls><|eom|>",
            "",
        ),
    ],
    ids=["kimi_k3", "muse", "muse_without_header", "muse_call"],
)
def test_words_that_only_frame_a_message_are_not_shown(text: str, shown: str) -> None:
    """They are the model's to its server, and no part of what it says."""
    assert read([text])[0] == shown
    assert misread(text) == []


@pytest.mark.parametrize(
    "text",
    [
        '<function=get_weather{"city": "Paris", "days": 2}</function>',
        "<tool_call>get_weather<arg_key>days</arg_key><arg_value>2</arg_value>"
        "<arg_key>city</arg_key><arg_value>Paris</tool_call>",
        '<function_calls><invoke name="get_weather">{"city": "Paris", "days": 2}</invoke></function_calls>',
        '<minimax:tool_call><invoke name="get_weather">{"city": "Paris", "days": 2}</invoke></minimax:tool_call>',
        '<dots_function_call>{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}</dots_function_call>',
        'Action: get_weather\nAction Input:\n```json\n{"city": "Paris", "days": 2}\n```',
        'Action: `get_weather`\nAction Input: `{"city": "Paris", "days": 2}`',
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:<escape>2<escape>}<end_function_call>",
    ],
)
def test_odd_spellings_of_known_dialects_are_read(text: str) -> None:
    """Each was seen of a model; the values have the types of the schema."""
    shown, calls = read([text])
    assert shown == ""
    assert [(name, read_json(arguments)) for name, arguments in calls] == CALLS
    assert misread(text) == []


@pytest.mark.parametrize(
    "text",
    [
        '<function=get_weather{"city": "Par',
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris",
        'Action: get_weather\nAction Input:\n```json\n{"city": "Par',
        'Action: `get_weather`\nAction Input: `{"city": "Paris"}',
        'Action: `get_weather\nAction Input: {"city": "Paris"}',
        '<dots_function_call>{"name": "get_weather", "arguments": {"city": "Par',
    ],
)
def test_what_was_cut_is_no_call(text: str) -> None:
    """Nothing is completed: the text stays as it came."""
    assert read([text]) == (text, [])
    assert misread(text) == []
