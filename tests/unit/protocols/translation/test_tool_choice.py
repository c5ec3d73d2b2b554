"""Tools and choices in the terms of upstreams that lack some of them (B24, B25)."""

import msgspec
import pytest

from treadle.core.items import text_message
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation.tool_choice import settle_tools
from treadle.protocols.translation.upstream_features import Traits
from treadle.protocols.translation_notes import Notes

TOOLS = (ToolSpec(name="a"), ToolSpec(name="b"), ToolSpec(name="c"))
REQUIRED = ToolChoice(mode="required")
NAMED = ToolChoice(mode="named", name="b")


def settle(choice: ToolChoice, traits: Traits, tools=TOOLS, parallel: bool | None = None):
    """Return the names offered, the choice, the parallel flag, and each note's code with its action."""
    notes = Notes()
    plan = Plan(
        items=(text_message("user", "hi"),),
        model="m",
        tools=tools,
        tool_choice=choice,
        options=Options(parallel_tool_calls=parallel),
    )
    settled = settle_tools(plan, traits, notes)
    said = [(note.code, note.action) for note in notes.all()]
    return [tool.name for tool in settled.tools], settled.tool_choice, settled.options.parallel_tool_calls, said


@pytest.mark.parametrize("choice", [AUTO, NONE, REQUIRED, NAMED])
def test_what_the_upstream_has_is_kept(choice):
    """All four modes reach an upstream that knows them."""
    assert settle(choice, Traits()) == (["a", "b", "c"], choice, None, [])


@pytest.mark.parametrize(
    ("choice", "modes", "expected"),
    [
        (NAMED, {"auto", "required"}, (["b"], REQUIRED, None, [("tool_choice_coerced", "emulated")])),
        (NAMED, {"auto"}, (["b"], AUTO, None, [("tool_choice_coerced", "coerced")])),
        (REQUIRED, {"auto", "none"}, (["a", "b", "c"], AUTO, None, [("tool_choice_coerced", "coerced")])),
        (NONE, {"auto"}, ([], AUTO, None, [("tool_choice_coerced", "emulated")])),
    ],
)
def test_a_missing_mode_becomes_the_nearest(choice, modes, expected):
    """A named tool is offered alone, required becomes auto, and none offers nothing."""
    assert settle(choice, Traits(choices=frozenset(modes))) == expected


@pytest.mark.parametrize(("choice", "said"), [(AUTO, []), (NONE, []), (REQUIRED, ["coerced"]), (NAMED, ["coerced"])])
def test_without_tools_there_is_nothing_to_choose(choice, said):
    """Neither a choice nor the parallel flag is sent without tools; a forced call that cannot be is said."""
    names, settled, parallel, notes = settle(choice, Traits(), tools=(), parallel=False)
    assert (names, settled, parallel) == ([], AUTO, None)
    assert [action for _, action in notes] == said


def test_allowed_tools_narrow_the_list_itself():
    """The choice then speaks of what is left."""
    choice = ToolChoice(mode="required", allowed=("a", "c", "ghost"))
    assert settle(choice, Traits()) == (["a", "c"], REQUIRED, None, [])


@pytest.mark.parametrize(
    ("wanted", "has_flag", "sent", "said"),
    [
        (None, True, None, []),
        (False, True, False, []),
        (True, True, True, []),
        (False, False, None, [("parallel_dropped", "dropped")]),
        (True, False, None, []),
    ],
)
def test_the_parallel_flag_is_sent_only_where_it_means_something(wanted, has_flag, sent, said):
    """Null stays the default, and a ban on parallel calls that cannot be sent is said."""
    assert settle(AUTO, Traits(has_parallel_flag=has_flag), parallel=wanted)[2:] == (sent, said)


def test_with_none_no_parallel_flag_is_sent():
    """Nothing will be called, in parallel or not."""
    assert settle(NONE, Traits(), parallel=False) == (["a", "b", "c"], NONE, None, [])


def test_more_tools_than_the_upstream_takes_are_dropped_and_counted():
    """The first ones are kept."""
    notes = Notes()
    plan = Plan(items=(), model="m", tools=TOOLS)
    assert settle_tools(plan, Traits(tools_max=1), notes).tools == TOOLS[:1]
    (note,) = notes.all()
    assert (note.code, note.action, note.field, note.count) == ("tools_dropped", "dropped", "tools[1]", 2)


@pytest.mark.parametrize(
    ("choice", "is_kept"),
    [
        (ToolChoice(), True),
        (ToolChoice(mode="required"), True),
        (ToolChoice(mode="none"), False),
        (ToolChoice(allowed=("f",)), True),
    ],
)
def test_a_providers_own_tools_obey_the_choice_too(choice: ToolChoice, is_kept: bool) -> None:
    """With `none` nothing is searched; a list of allowed tools has narrowed them when it was read."""
    options = Options(extra={"tools": msgspec.Raw(b'[{"type":"web_search"}]')}, extra_protocol="responses")
    plan = Plan(items=(), model="m", options=options, tool_choice=choice, tools=(ToolSpec(name="f"),))
    settled = settle_tools(plan, PROTOCOLS["responses"].features, Notes())
    assert ("tools" in settled.options.extra) is is_kept


@pytest.mark.parametrize(
    ("choice", "modes", "settled", "said"),
    [
        (REQUIRED, {"auto", "required"}, REQUIRED, []),
        (ToolChoice(mode="required", allowed=()), {"auto", "required"}, REQUIRED, []),
        (REQUIRED, {"auto"}, AUTO, ["coerced"]),
        (NONE, {"auto", "none"}, AUTO, []),
    ],
)
def test_a_provider_can_be_made_to_use_its_own_tools(choice, modes, settled, said) -> None:
    """Where they are all that is offered, `required` speaks of them."""
    options = Options(extra={"tools": msgspec.Raw(b'[{"type":"web_search"}]')}, extra_protocol="responses")
    notes = Notes()
    plan = Plan(items=(), model="m", options=options, tool_choice=choice)
    assert settle_tools(plan, Traits(choices=frozenset(modes)), notes).tool_choice == settled
    assert [note.action for note in notes.all()] == said


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_a_server_that_is_not_known_is_offered_a_named_tool_alone(protocol):
    """Servers of one's own models read a named choice as `auto`; a word and a single tool leave them no other."""
    assert settle(NAMED, PROTOCOLS[protocol].features)[:2] == (["b"], REQUIRED)


def test_beside_a_named_tool_no_tool_of_the_provider_is_offered():
    """Where the named tool stands alone, the search of the provider would be another one to call."""
    options = Options(extra={"tools": msgspec.Raw(b'[{"type":"web_search"}]')}, extra_protocol="responses")
    plan = Plan(items=(), model="m", options=options, tool_choice=NAMED, tools=TOOLS)
    assert settle_tools(plan, PROTOCOLS["responses"].features, Notes()).options.extra == {}
