"""`treadle cassette`: a stored run plays again from what the journal alone knows, and passes as a scenario."""

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest

from treadle import tool
from treadle.cli.main import main
from treadle.config import LimitsSection, Upstream
from treadle.core.events import RunEnded, RunEvent, TextDelta
from treadle.protocols.protocol_registry import ProtocolName
from treadle.providers.cassettes.file_format import load_cassette
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.runtime import Parts, Runtime
from unit.cli.own_journal import here as here
from unit.cli.stored import PRICE, TURNS, get_price, run_script, settings_in

Capture = pytest.CaptureFixture[str]


@tool(name="odd.name", effect="write")
def odd(text: str) -> str:
    """Repeat a text."""
    if text == "bad":
        raise ValueError("it is bad")
    return text


async def replayed(here: Path, *prompts: str, **fields: Any) -> list[RunEvent]:
    """Run the prompts again with the cassette as the only upstream."""
    upstream = Upstream(name="recorded", base_url=f"cassette:{here}/run.jsonl", **fields)
    settings = settings_in(here / "again", upstream=(upstream,))
    (here / "again").mkdir(exist_ok=True)
    async with Runtime(settings, tools=[get_price, odd], parts=Parts(env={}, demo_delay_s=0.0)) as runtime:
        return [event for prompt in prompts async for event in runtime.run(prompt, model="script")]


def text_of(events: list[RunEvent]) -> list[str]:
    """Return the pieces of text that were told."""
    return [event.text for event in events if isinstance(event, TextDelta)]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_a_stored_run_plays_again_in_every_protocol(here: Path, protocol: ProtocolName, capsys: Capture) -> None:
    """The requests that the loop makes are those in the cassette, and the pieces are those of the tape."""
    turns = (
        ScriptTurn(
            reasoning="Two things.", text="Let me see.", calls=(PRICE, ReplyCall(name="odd.name", args={"text": "é"}))
        ),
        ScriptTurn(text="It costs 12.5 €, and é."),
    )
    asyncio.run(run_script(here, *turns, tools=(get_price, odd)))
    assert main(["cassette", "last", "--protocol", protocol, "-o", "run.jsonl"]) == 0
    said = capsys.readouterr().err
    assert said == '2 model calls in run.jsonl; play it as upstream "recorded"\n'
    events = asyncio.run(replayed(here, "What is A7?"))
    assert "".join(text_of(events)) == "Let me see.It costs 12.5 €, and é."
    assert len(text_of(events)) > 4
    assert isinstance(events[-1], RunEnded)
    assert events[-1].status == "completed"


def test_a_run_that_plays_again_is_equal(here: Path, capsys: Capture) -> None:
    """Told by `treadle diff` between the run and its replay."""
    asyncio.run(run_script(here, prompts=("What is A7?",)))
    assert main(["cassette", "last", "-o", "run.jsonl"]) == 0
    upstream = Upstream(name="recorded", base_url=f"cassette:{here}/run.jsonl")

    async def again() -> list[str]:
        async with Runtime(
            settings_in(here, upstream=(upstream,)), tools=[get_price], parts=Parts(env={}, demo_delay_s=0.0)
        ) as runtime:
            async for _ in runtime.run("What is A7?", model="script"):
                pass
            return [row.id for row in await runtime.store.list_runs()]

    newer, older = asyncio.run(again())
    capsys.readouterr()
    assert main(["diff", older, newer]) == 0
    assert capsys.readouterr().out.endswith("are equal\n")


def test_a_failed_run_fails_again(here: Path) -> None:
    """A refusal is a refusal, a cut is a cut."""
    for faults, how in ((Faults(status=503, message="full"), "eof"), (Faults(disconnect_after=300), "reset")):
        asyncio.run(run_script(here, ScriptTurn(text="a rather long answer", faults=faults)))
        assert main(["cassette", "last", "-o", "run.jsonl"]) == 0
        assert [call.ended.how for call in load_cassette(here / "run.jsonl").calls] == [how]
        events = asyncio.run(replayed(here, "What is A7?"))
        assert isinstance(events[-1], RunEnded)
        assert events[-1].status == "failed"


def scenario_of(here: Path, capsys: Capture) -> dict[str, Any]:
    """Export the last run as a scenario, which must pass at every cut, and return it."""
    assert main(["cassette", "last", "--as", "scenario", "-o", "run.toml"]) == 0
    assert capsys.readouterr().err == "run.toml passes; treadle eval run.toml plays it\n"
    assert main(["eval", "run.toml"]) == 0
    capsys.readouterr()
    return tomllib.loads((here / "run.toml").read_text(encoding="utf-8"))


def test_a_run_becomes_a_scenario_that_passes(here: Path, capsys: Capture) -> None:
    """Its replies are the script, its results are canned, and what happened is expected."""
    asyncio.run(run_script(here))
    scenario = scenario_of(here, capsys)
    assert scenario["turn"] == [{"user": "What is A7?"}]
    assert [turn.get("text") for turn in scenario["script"]] == ["Let me see.", "It costs 12.5 €."]
    assert [(each["name"], each["results"]) for each in scenario["tool"]] == [("get_price", [{"output": "12.5"}])]
    expected = {name: value for row in scenario["expect"] for name, value in row.items()}
    assert expected["calls"] == [{"name": "get_price", "args": {"article": "A7"}}]
    assert expected["ended"] == {"status": "completed"}


def test_a_conversation_becomes_its_turns(here: Path, capsys: Capture) -> None:
    """All runs of a session, up to the one that was named."""
    asyncio.run(run_script(here, *TURNS, ScriptTurn(text="Fine."), prompts=("What is A7?", "Thanks!"), session="s"))
    scenario = scenario_of(here, capsys)
    assert [turn["user"] for turn in scenario["turn"]] == ["What is A7?", "Thanks!"]
    assert len(scenario["script"]) == 3


@pytest.mark.parametrize(
    ("turns", "sections"),
    [
        ((ScriptTurn(calls=(ReplyCall(name="odd.name", args={"text": "bad"}),)), ScriptTurn(text="It failed.")), {}),
        ((ScriptTurn(calls=(ReplyCall(name="nobody", args={}),)), ScriptTurn(text="No such tool.")), {}),
        ((ScriptTurn(calls=(ReplyCall(name="odd.name", raw='{"text": nul'),)), ScriptTurn(text="Oh.")), {}),
        ((ScriptTurn(calls=(ReplyCall(name="odd.name", raw='{"text": null}'),)), ScriptTurn(text="Oh.")), {}),
        ((ScriptTurn(text="So much to s", finish="length"),), {}),
        ((ScriptTurn(refusal="I will not."),), {}),
        ((ScriptTurn(faults=Faults(status=500, message="it broke")),), {}),
        ((ScriptTurn(text="Half of an answer that is long", faults=Faults(disconnect_after=600)),), {}),
        (
            (*(ScriptTurn(calls=(PRICE,)) for _ in range(2)), ScriptTurn(text="Enough.")),
            {"limits": LimitsSection(max_iterations=2)},
        ),
        ((ScriptTurn(reasoning="Hm.\n'quoted' \"text\" \x7f", text="Tabs\tand\nlines"),), {}),
    ],
)
def test_whatever_happened_passes_as_a_scenario(
    here: Path, turns: tuple[ScriptTurn, ...], sections: dict[str, Any], capsys: Capture
) -> None:
    """Failures, unknown tools, arguments that are no JSON, limits, refusals and cuts."""
    asyncio.run(run_script(here, *turns, tools=(get_price, odd), **sections))
    scenario_of(here, capsys)


def test_a_run_that_is_not_there_is_said(here: Path, capsys: Capture) -> None:
    """By both forms."""
    asyncio.run(run_script(here))
    for form in ("cassette", "scenario"):
        assert main(["cassette", "run_x", "--as", form]) == 1
        assert "there is no run 'run_x'" in capsys.readouterr().err
