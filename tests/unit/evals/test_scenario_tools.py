"""The toolkit: deterministic tools over one world, run by the real tool runner."""

from typing import Any

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.core.items import CallItem
from treadle.core.json import write_json
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.evals.scenario_file import CannedResult, CannedTool, ScenarioWorld
from treadle.evals.scenario_tools import Toolkit
from treadle.runtime import SystemClock
from treadle.tools import ToolRegistry, ToolRunner

EVERY = ("state.get", "draft.patch", "facts.propose", "get_weather", "add", "fail", "slow")
WORLD = ScenarioWorld(facts={"name": "Ada"}, draft={"title": "", "tags": ["a"]}, locks=("/draft/locked",))


async def run(toolkit: Toolkit, name: str, **arguments: Any) -> Outcome:
    """Run one call as the loop would."""
    runner = ToolRunner(ToolRegistry(toolkit.tools([name])), clock=SystemClock())
    call = CallItem(call_id="c1", name=name, arguments=write_json(arguments).decode(), side="server")
    try:
        return await runner.run(call, CallContext(run_id="r1"))
    finally:
        runner.close()


async def told(toolkit: Toolkit, name: str, **arguments: Any) -> tuple[str, Any]:
    """Return the result code and what the model reads, as JSON."""
    outcome = await run(toolkit, name, **arguments)
    return outcome.rc, msgspec.json.decode(outcome.text)


def test_every_tool_declares_its_effect() -> None:
    """What only reads is free in the graders, so the classes are part of the contract."""
    tools = {tool.name: tool.policy.effect for tool in Toolkit(ScenarioWorld()).tools(EVERY)}
    assert tools == {
        "state.get": "read",
        "draft.patch": "write",
        "facts.propose": "write",
        "get_weather": "read",
        "add": "read",
        "fail": "write",
        "slow": "read",
    }


def test_there_is_no_tool_that_commits_facts() -> None:
    """A scenario that asks for one is told what there is."""
    with pytest.raises(ConfigError, match=r"the toolkit has no facts\.commit; it has state\.get, draft\.patch"):
        Toolkit(ScenarioWorld()).tools(["facts.commit"])


async def test_state_is_read_by_pointer() -> None:
    """All of it, or a part; a wrong pointer is an error that the model can read."""
    toolkit = Toolkit(WORLD)
    document = {
        "facts": {"name": "Ada"},
        "draft": {"title": "", "tags": ["a"]},
        "locks": ["/draft/locked"],
        "ui": {},
    }
    assert await told(toolkit, "state.get") == ("ok", document)
    assert await told(toolkit, "state.get", path="/draft/tags") == ("ok", ["a"])
    rc, error = await told(toolkit, "state.get", path="/draft/none")
    assert (rc, error["error"]["code"]) == ("failed", "invalid_pointer")


async def test_a_patch_changes_the_draft_and_a_lock_refuses_it_by_name() -> None:
    """The world moves only when the workspace let it."""
    toolkit = Toolkit(WORLD)
    assert await told(toolkit, "draft.patch", path="/draft/title", value="New") == ("ok", {"version": 2})
    assert await told(toolkit, "draft.patch", path="/draft/tags", op="append", value={"b": 1}) == ("ok", {"version": 3})
    rc, error = await told(toolkit, "draft.patch", path="/draft/locked", value=1)
    assert (rc, error["error"]["code"]) == ("failed", "workspace_locked")
    assert "/draft/locked" in error["error"]["message"]
    assert toolkit.workspace.draft == {"title": "New", "tags": ["a", {"b": 1}]}


async def test_a_proposed_fact_waits_and_shows_in_the_document() -> None:
    """Facts stay; the proposal is there for `state` expectations to see."""
    toolkit = Toolkit(WORLD)
    before = toolkit.document()
    rc, answer = await told(toolkit, "facts.propose", path="/facts/name", value="Eve", reason="said so")
    assert (rc, answer) == ("ok", {"proposal_id": "p1", "waiting_for": "a person", "version": 2})
    assert toolkit.document() == {**before, "proposals": [{"/facts/name": "Eve"}]}


async def test_the_weather_is_always_the_same() -> None:
    """Whatever the case of the city; an unknown one is an error with a code of its own."""
    toolkit = Toolkit(ScenarioWorld())
    paris = {"city": "PARIS", "sky": "cloudy", "temperature": 21, "unit": "celsius"}
    assert await told(toolkit, "get_weather", city="PARIS") == ("ok", paris)
    rc, warm = await told(toolkit, "get_weather", city="Tokyo", unit="fahrenheit")
    assert (rc, warm["temperature"]) == ("ok", 78.8)
    rc, error = await told(toolkit, "get_weather", city="Atlantis")
    assert (rc, error["error"]["code"]) == ("failed", "unknown_city")


async def test_numbers_are_added() -> None:
    """Integers and fractions alike."""
    assert await told(Toolkit(ScenarioWorld()), "add", a=20, b=22.5) == ("ok", 42.5)


async def test_the_failing_and_the_slow_tool_do_what_their_names_say() -> None:
    """One raises, the other never ends by itself."""
    failed = await run(Toolkit(ScenarioWorld()), "fail")
    slow = await run(Toolkit(ScenarioWorld()), "slow")
    assert (failed.rc, slow.rc) == ("failed", "timeout")
    assert "this tool always fails" in failed.text


async def test_a_canned_tool_gives_its_results_in_order_and_then_says_that_there_are_no_more() -> None:
    """Outputs as text, errors with their code, whatever it is called with."""
    canned = CannedTool(
        name="look", results=(CannedResult(output="blue"), CannedResult(error="It is dark.", code="timeout"))
    )
    registry = ToolRegistry(Toolkit(ScenarioWorld()).canned([canned]))
    runner = ToolRunner(registry, clock=SystemClock())
    outcomes = [
        await runner.run(CallItem(call_id=f"c{n}", name="look", arguments='{"at":"sky"}'), CallContext(run_id="r"))
        for n in range(3)
    ]
    runner.close()
    assert [(outcome.rc, outcome.text) for outcome in outcomes] == [
        ("ok", "blue"),
        ("timeout", '{"error":{"code":"timeout","message":"It is dark."}}'),
        ("failed", '{"error":{"code":"failed","message":"There is no further result of look."}}'),
    ]


def test_the_schema_of_a_canned_tool_must_be_one() -> None:
    """JSON Schema that cannot be used is found before anything is played."""
    bad = CannedTool(name="look", parameters='{"type":"song"}')
    with pytest.raises(ConfigError, match='the schema of "look" cannot be used'):
        Toolkit(ScenarioWorld()).canned([bad])
