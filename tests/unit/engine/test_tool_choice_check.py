"""Who answers a call that was not asked for: one that is not offered, and one against the tool choice."""

import msgspec
import pytest

from treadle.core.events import ItemDone, Noted, ToolFinished
from treadle.core.items import text_of
from treadle.core.tool_definitions import AUTO, NAMES_BYTES_MAX, ToolChoice
from treadle.engine.limits import Limits
from treadle.engine.tool_choice_check import ToolChoiceCheck
from unit.engine.fakes import Bench, FakeModel, FakeToolbox, ask_for, call, client, ok, say, server

NAMED = ToolChoice(mode="named", name="add")


def message_of(finished: ToolFinished) -> str:
    """Return the words of an error that the model reads."""
    return msgspec.json.decode(text_of(finished.result.output))["error"]["message"]


async def test_a_call_that_was_not_offered_goes_to_a_client_that_brought_all_tools():
    """It runs the loop itself, so it is told what the model said, and no hidden round is made."""
    bench = Bench(FakeModel(ask_for(call("invented"))), FakeToolbox(), client("theirs"))
    ended = await bench.run()
    assert (ended.status, ended.stop, ended.rounds) == ("requires_action", "calls", 1)
    assert [(event.item.name, event.item.side) for event in bench.of(ItemDone)] == [("invented", "client")]
    assert bench.of(ToolFinished) == []


@pytest.mark.parametrize(
    ("offers", "limits"),
    [
        ((client("theirs"), server("ours")), Limits()),
        ((), Limits()),
        ((client("theirs"),), Limits(strict_unknown_tool=True)),
    ],
    ids=["a server tool takes part", "no tool is offered", "unknown tools fail the run"],
)
async def test_else_treadle_answers_what_was_not_offered(offers, limits):
    """A client cannot know which of Treadle's tools was meant, and one without tools has no loop."""
    bench = Bench(FakeModel(ask_for(call("invented")), say("ok")), FakeToolbox(), *offers, limits=limits)
    await bench.run()
    assert [event.result.rc for event in bench.of(ToolFinished)] == ["unknown_tool"]


async def test_a_deed_that_is_a_persons_only_goes_to_no_client():
    """Whoever would run it, no model commits facts."""
    bench = Bench(FakeModel(ask_for(call("facts.commit")), say("ok")), FakeToolbox(), client("theirs"))
    await bench.run()
    assert [event.result.rc for event in bench.of(ToolFinished)] == ["denied"]


async def test_the_answer_to_an_unknown_name_lists_every_tool_the_nearest_first():
    """A model takes a list that ends for all there is."""
    names = [f"tool_{letter}" for letter in "abcdefgh"]
    bench = Bench(FakeModel(ask_for(call("tool_gg")), say("ok")), FakeToolbox(), *map(server, [*names, "other"]))
    await bench.run()
    [finished] = bench.of(ToolFinished)
    head, _, listed = message_of(finished).partition(" Offered: ")
    assert head == "No tool named 'tool_gg' is offered."
    shown = listed.removesuffix(".").split(", ")
    assert shown[0] == "tool_g"
    assert sorted(shown) == sorted([*names, "other"])


async def test_a_list_that_does_not_fit_says_how_many_more_there_are():
    """Its size is bounded, in bytes."""
    names = [f"{n:03}_{'é' * 50}" for n in range(100)]
    bench = Bench(FakeModel(ask_for(call("zzz")), say("ok")), FakeToolbox(), *map(server, names))
    await bench.run()
    listed = message_of(bench.of(ToolFinished)[0]).partition(" Offered: ")[2]
    shown, _, left = listed.removesuffix(".").removesuffix(" more").rpartition(" and ")
    assert len(shown.split(", ")) + int(left) == 100
    assert NAMES_BYTES_MAX - 120 < len(shown.encode()) <= NAMES_BYTES_MAX


async def test_under_a_named_choice_no_other_tool_of_the_server_runs():
    """The model reads why, and is bound until it obeys."""
    model = FakeModel(ask_for(call("rm")), ask_for(call("add", call_id="c2")), say("done"))
    bench = Bench(model, FakeToolbox(add=ok(), rm=ok()), server("add"), server("rm", effect="write"), choice=NAMED)
    await bench.run()
    assert [plan.tool_choice.mode for plan in model.plans] == ["named", "named", "auto"]
    assert bench.toolbox.ran == ["c2"]
    refused = bench.of(ToolFinished)[0]
    assert (refused.result.rc, message_of(refused)) == (
        "denied",
        "Not run: rm is offered, but only add can be called now.",
    )


async def test_a_clients_tool_that_was_not_chosen_is_not_handed_out():
    """The client asked for one tool and would be right to trust that."""
    model = FakeModel(ask_for(call("other")), ask_for(call("add", call_id="c2")))
    bench = Bench(model, FakeToolbox(), client("add"), client("other"), choice=NAMED)
    ended = await bench.run()
    assert ended.status == "requires_action"
    assert [(event.item.name, event.item.side) for event in bench.of(ItemDone)] == [
        ("other", "server"),
        ("add", "client"),
    ]


async def test_with_a_choice_of_none_no_call_is_handed_out():
    """A model that calls all the same is told, and asked again under the same choice."""
    model = FakeModel(ask_for(call("theirs")), say("Well then."))
    bench = Bench(model, FakeToolbox(), client("theirs"), choice=ToolChoice(mode="none"))
    ended = await bench.run()
    assert (ended.status, ended.rounds) == ("completed", 2)
    assert [plan.tool_choice.mode for plan in model.plans] == ["none", "none"]
    assert message_of(bench.of(ToolFinished)[0]) == "Not run: theirs is offered, but no tool can be called now."


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [(NAMED, "the tool 'add'"), (ToolChoice(mode="required"), "a tool")],
    ids=["named", "required"],
)
async def test_an_answer_without_the_call_that_was_wanted_is_noted(choice, wanted):
    """It stands, since it was told already, and is not called exact."""
    bench = Bench(FakeModel(say("no")), FakeToolbox(add=ok()), server("add"), choice=choice)
    await bench.run()
    [noted] = bench.of(Noted)
    assert (noted.note.code, noted.note.action, noted.note.field, noted.note.message) == (
        "tool_choice_ignored",
        "coerced",
        "tool_choice",
        f"{wanted} had to be called, and the model did not call it",
    )


def test_a_model_call_that_is_made_anew_is_bound_as_before():
    """What met the choice before the process died is void with the rest of what was said."""
    choice = ToolChoiceCheck(NAMED)
    assert choice.next(is_final=False) == NAMED
    choice.meet()
    assert choice.repeat() == NAMED
    assert choice.next(is_final=False) == NAMED
    choice.meet()
    assert choice.next(is_final=False) == AUTO
    assert choice.repeat() == AUTO
