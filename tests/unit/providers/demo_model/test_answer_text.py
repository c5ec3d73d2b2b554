"""What the demo model says of results and of itself."""

import pytest

from treadle.core.items import CallItem, ResultItem, text_result
from treadle.core.tool_definitions import ToolSpec
from treadle.providers.demo_model.answer_text import answer, ask_for, introduce

CALL = CallItem(call_id="c", name="get_weather", arguments='{"city":"Paris"}')


def say(text: str, *, is_error: bool = False, call: CallItem = CALL) -> str:
    """Return what is said of one result."""
    return answer([(call, text_result(call, text, is_error=is_error))])


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ('{"temperature_c":18,"condition":"Cloudy","city":"Paris"}', "It is **18 °C** and cloudy in Paris."),
        ('{"temperature_c":18.5,"sky":"light rain"}', "It is **18.5 °C** in Paris, with light rain."),
        ('{"temperature_c":17,"sky":"clear sky"}', "It is **17 °C** in Paris, with clear sky."),
        ('{"temp_f":64,"sky":"overcast","location":"Oslo"}', "It is **64 °F** and overcast in Oslo."),
        ('{"temperature":-3}', "It is **-3 °C** in Paris."),
        ("84", "**get_weather** answered **84**"),
        ('"sunny"', "**get_weather** answered **sunny**"),
        ("sunny", "**get_weather** answered **sunny**"),
        ("", "**get_weather** answered nothing"),
        ("{}", "**get_weather** answered nothing."),
        ("[]", "**get_weather** found nothing."),
        ('["a",{"b":1}]', '**get_weather** found 2:\n\n- a\n- {"b":1}'),
        ('{"a":1,"b":"two\\nlines"}', "**get_weather** answered:\n\n- **a**: 1\n- **b**: two lines"),
        ('{"output":"a.py","count":1}', "**get_weather** answered **a.py**"),
        ('{"output":"a\\nb","count":2}', "**get_weather** answered this:\n\n```\na\nb\n```"),
        ('{"output":"x\\n```\\ny"}', "**get_weather** answered this:\n\n````\nx\n```\ny\n````"),
        ('{"error":"File not found: x"}', "**get_weather** failed: File not found: x"),
        ('{"error":{"code":"timeout","message":"too slow"}}', "**get_weather** failed: too slow"),
    ],
)
def test_a_result_becomes_a_sentence(output, sentence):
    """Weather, scalars, lists, objects, text and failures, each readable."""
    assert say(output) == sentence


def test_an_error_result_is_explained_whatever_it_holds():
    """The flag counts, not the text."""
    assert say("boom", is_error=True) == "**get_weather** failed: boom"
    assert say("", is_error=True) == "**get_weather** failed: it did not say why"
    assert say('{"temperature":3}', is_error=True).startswith("**get_weather** failed:")


def test_long_results_are_cut():
    """Ten rows, two thousand bytes, and a word about the rest."""
    assert say("[" + ",".join(map(str, range(30))) + "]").endswith("- 9\n- … and 20 more")
    text = say("line\n" * 10_000)
    assert text.endswith("(cut here; it was longer)")
    assert len(text) < 2_200


def test_several_results_are_several_paragraphs():
    """In the order of the results; one without a known call is told by its name."""
    pairs = [(CALL, text_result(CALL, "1")), (None, ResultItem(call_id="x", output=())), (None, text_result(CALL, "2"))]
    assert answer(pairs) == (
        "**get_weather** answered **1**\n\n**the tool** answered nothing\n\n**get_weather** answered **2**"
    )


def test_arguments_that_are_no_object_do_no_harm():
    """The place is taken from the arguments only where there are any."""
    for arguments in ("{", "[]", "{}"):
        call = CallItem(call_id="c", name="w", arguments=arguments)
        assert say('{"temperature":3}', call=call) == "It is **3 °C**."


def test_the_introduction_lists_tools_with_prompts_to_try():
    """A newcomer reads what this is and what to type."""
    text = introduce([ToolSpec(name="clock", description="Tell the time.\nMore.")], may_call=True)
    assert "**demo model**" in text
    assert text.endswith("Try one of these:\n\n- **clock**: Tell the time. *Use clock*")


def test_the_introduction_says_why_nothing_can_be_called():
    """Without tools, and where tools may not be called."""
    assert introduce([], may_call=True).endswith("Set a provider's key to talk to a real model.")
    assert introduce([ToolSpec(name="clock")], may_call=False).endswith("I may not call a tool in this turn.")
    assert introduce([ToolSpec(name=f"t{n}") for n in range(12)], may_call=True).endswith("… and 2 more tools.")


def test_a_missing_argument_is_asked_for_with_an_example():
    """The question names the parameter and a prompt that would do."""
    assert ask_for(ToolSpec(name="clock"), ["city", "day"]) == (
        "I would call **clock**, but what is `city` and `day`? Try: *Use clock*"
    )
