import msgspec

from treadle.core.items import text_message
from treadle.core.request import Options, Request, Surface, answer_form, inherit
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec

RAW = msgspec.Raw
BEFORE = Request(
    protocol="responses",
    model="m",
    items=(text_message("user", "first"),),
    instructions="Be brief.",
    tools=(ToolSpec(name="look"),),
    tool_choice=ToolChoice(mode="required"),
    options=Options(temperature=0.5, seed=7, stop=("x",), extra={"a": RAW(b"1"), "b": RAW(b"2")}),
    surface=Surface(stream=True),
)


def test_what_a_request_leaves_out_is_taken_from_the_one_before():
    """Instructions, tools, choice and each option; not the input, and not how the client is answered."""
    request = Request(protocol="responses", model="n", items=(text_message("user", "next"),))
    assert inherit(request, BEFORE) == Request(
        protocol="responses",
        model="n",
        items=request.items,
        instructions="Be brief.",
        tools=BEFORE.tools,
        tool_choice=BEFORE.tool_choice,
        options=BEFORE.options,
    )


def test_what_a_request_says_itself_stays():
    """Even where the one before said it too; fields that are only carried come together."""
    request = Request(
        protocol="responses",
        model="n",
        instructions="Be long.",
        tools=(ToolSpec(name="find"),),
        tool_choice=NONE,
        options=Options(temperature=0.9, extra={"b": RAW(b"3")}),
    )
    made = inherit(request, BEFORE)
    assert (made.instructions, made.tools, made.tool_choice) == ("Be long.", request.tools, NONE)
    assert made.options == Options(temperature=0.9, seed=7, stop=("x",), extra={"a": RAW(b"1"), "b": RAW(b"3")})
    assert inherit(request, Request(protocol="chat", model="m")).tool_choice == NONE
    assert ToolChoice() == AUTO


def test_the_form_of_an_answer_is_named_as_options_name_it():
    """A schema alone becomes what the Responses API calls a format."""
    assert msgspec.json.decode(answer_form(RAW(b'{"type":"object"}'))) == {
        "type": "json_schema",
        "name": "answer",
        "schema": {"type": "object"},
    }
