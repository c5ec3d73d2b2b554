"""A stored conversation as a scenario: where turns begin, what becomes canned, and what is expected."""

from typing import Any

import msgspec

from treadle.core.items import AnyItem, CallItem, text_message, text_result
from treadle.core.plan import Plan
from treadle.core.tool_definitions import Offer, ToolPolicy, ToolSpec
from treadle.engine.recorded_run import ReplyRecord
from treadle.evals.offline_runner import play
from treadle.evals.scenario_file import read_scenario
from treadle.evals.scenario_from_run import NO_ANSWER, NO_QUESTION, scenario_of, write_scenario
from treadle.journal.journal_interface import RunRow
from treadle.runs.views.recorded_rounds import ModelCall, StoredRun

ROW = RunRow(
    id="run_AB-1",
    response_id="p",
    conversation_id="c",
    protocol="chat",
    model="m",
    created_at=0.0,
    status="completed",
    rounds=1,
)
CLIENT = CallItem(call_id="c1", name="look", arguments='{"at":"sky"}', side="client")
SERVER = CallItem(call_id="c2", name="add", arguments='{"a":1}', side="server")
OFFERS = {
    "look": Offer(spec=ToolSpec(name="look", description="Look."), side="client"),
    "add": Offer(
        spec=ToolSpec(name="add", parameters=msgspec.Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}')),
        side="server",
        policy=ToolPolicy(effect="read"),
    ),
}


def made(*items: AnyItem, results: tuple[Any, ...] = ()) -> ModelCall:
    """A model call that said these items."""
    return ModelCall(
        plan=Plan(items=(), model="m"),
        events=(),
        items=items,
        results=results,
        reply=ReplyRecord(ending="finished", stop="calls" if any(isinstance(i, CallItem) for i in items) else "done"),
        asked_at=0.0,
        replied_at=0.0,
    )


def run(*calls: ModelCall, added: tuple[AnyItem, ...], **fields: Any) -> StoredRun:
    """A stored run."""
    return StoredRun(row=msgspec.structs.replace(ROW, **fields), added=added, offers=OFFERS, calls=calls)


def user(text: str) -> AnyItem:
    """Something a user said."""
    return text_message("user", text)


def said(text: str) -> AnyItem:
    """Something the model said."""
    return text_message("assistant", text)


async def passing(*runs: StoredRun) -> dict[str, Any]:
    """Return the scenario of these runs, which must pass."""
    document = scenario_of(runs)
    sample = await play(read_scenario(write_scenario(document)))
    assert (sample.broken, [verdict for verdict in sample.verdicts if not verdict.passed]) == (None, [])
    return document


async def test_a_history_sent_by_the_client_is_turns_of_its_own() -> None:
    """Chat clients send all of it with every request; system messages are not part of a scenario."""
    history = (text_message("system", "Be short."), user("Hi"), said("Hello."), user("And now?"))
    document = await passing(run(made(said("Bye.")), added=history))
    assert [turn["user"] for turn in document["turn"]] == ["Hi", "And now?"]
    assert [turn["text"] for turn in document["script"]] == ["Hello.", "Bye."]
    assert document["id"] == "recorded.run_ab_1"


async def test_a_clients_own_tool_is_canned_over_two_requests() -> None:
    """The call ended one run, its result began the next; the scenario has one turn with both."""
    first = run(made(said("Wait."), CLIENT), added=(user("Sky?"),), status="requires_action")
    second = run(made(said("Blue.")), added=(text_result(CLIENT, "blue"),))
    document = await passing(first, second)
    assert (len(document["turn"]), len(document["script"])) == (1, 2)
    tools = {each["name"]: each for each in document["tool"]}
    assert tools["look"]["results"] == [{"output": "blue"}]
    assert "results" not in tools["add"]


async def test_a_run_that_waits_for_its_client_gets_an_end() -> None:
    """Nobody gave a result: the tool says so, and the script goes on without an answer."""
    document = await passing(run(made(CLIENT), added=(user("Sky?"),), status="requires_action"))
    assert document["script"][-1]["text"] == NO_ANSWER
    assert document["tool"][0]["results"] == [{"error": "No result was recorded.", "code": "interrupted"}]


async def test_an_error_of_a_tool_keeps_its_code_and_words() -> None:
    """As the model read it."""
    text = '{"error":{"code":"timeout","message":"It took too long."}}'
    result = text_result(SERVER, text, is_error=True, rc="timeout")
    document = await passing(run(made(SERVER, results=(result,)), made(said("Sorry.")), added=(user("1?"),)))
    tools = {each["name"]: each for each in document["tool"]}
    assert tools["add"]["results"] == [{"error": "It took too long.", "code": "timeout"}]
    assert {"milestones": ["call:add timeout"]} in document["expect"]


async def test_a_conversation_without_a_question_gets_one() -> None:
    """A scenario begins with somebody who asks; several questions in a row are one."""
    document = await passing(run(made(said("Hello.")), added=()))
    assert document["turn"] == [{"user": NO_QUESTION}]
    joined = await passing(run(made(said("Hello.")), added=(user("a"), user("b"))))
    assert joined["turn"] == [{"user": "a\n\nb"}]


async def test_limits_are_wide_enough_for_what_happened() -> None:
    """More rounds than the default were made without reaching a limit."""
    rounds = [
        made(msgspec.structs.replace(SERVER, call_id=f"c{n}", arguments=f'{{"a":{n}}}'), results=()) for n in range(9)
    ]
    results = [
        msgspec.structs.replace(each, results=(text_result(each.items[0], "1"),))  # type: ignore[arg-type]
        for each in rounds
    ]
    document = await passing(run(*results, made(said("Nine.")), added=(user("Count."),), rounds=10, calls=9))
    assert document["limits"] == {"max_iterations": 11}
