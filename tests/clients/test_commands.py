"""Coding agents follow their recipes through Treadle, each with upstreams of all four protocols.

Each is asked about a file; the model has it run a command and calls a server tool in the same turn.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clients.commands import COMMANDS, follow
from clients.model import answer, learnt
from clients.recipes import read_recipes
from clients.watched import Watched
from treadle.core.items import MessageItem, text_of
from treadle.core.plan import Plan
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_reply import Reply
from treadle.tools import tool

RECIPES = read_recipes()
NO_CHANGE = ("", "")
SHAPES: dict[str, tuple[str, tuple[str, str]]] = {
    "codex": ("Codex", NO_CHANGE),
    "codex-lite": ("Codex", ('model = "demo"', 'model = "gpt-6.1-sol"')),
    "codex-own": ("Codex with its own provider", NO_CHANGE),
    "claude": ("Claude Code", NO_CHANGE),
    "opencode-chat": ("opencode", NO_CHANGE),
    "opencode-responses": ("opencode", ("--model treadle/", "--model treadle-responses/")),
    "opencode-messages": ("opencode", ("--model treadle/", "--model treadle-messages/")),
    "opencode-gemini": ("opencode", ("--model treadle/", "--model treadle-gemini/")),
    "gemini": ("Gemini CLI", NO_CHANGE),
    "qwen": ("Qwen Code", NO_CHANGE),
}
"""What each recipe is called with: as it stands, or with another model or provider."""

ASKS_NPM = {"opencode"}
"""Clients that look for a package of their own in the background and do without."""

PATIENCE_S = 1.0
"""How long a slow tool takes; an agent that means to go away does so within milliseconds."""


@pytest.mark.parametrize("shape", SHAPES)
def test_a_coding_agent_runs_its_tool_beside_the_servers(
    gateway: Watched, tmp_path: Path, proof: str, weather: str, shape: str
) -> None:
    """Both results reach the answer that the agent prints, no request is refused, and no other host is asked."""
    name, change = SHAPES[shape]
    ran = follow(RECIPES[name].changed(change), gateway, tmp_path, proof)
    assert ran.code == 0, (ran.output, ran.errors)
    assert COMMANDS[name].last_words(ran.output) == learnt(proof, weather)
    upgrade = [("GET", "/v1/responses", 426)] if name == "Codex with its own provider" else []
    assert [refused[:3] for refused in gateway.refused] == upgrade
    assert name in ASKS_NPM or ran.outside == frozenset()


@pytest.mark.parametrize("shape", ["codex", "claude", "opencode-responses", "opencode-messages"])
def test_an_agent_stays_while_a_server_tool_runs(tmp_path: Path, proof: str, shape: str) -> None:
    """It has seen the tool started, and its own tool is done; it must still wait for the rest of the answer."""
    name, change = SHAPES[shape]

    @tool(effect="read")
    def get_weather(city: str) -> dict[str, int]:
        """Get the weather, once the agent had time to go away."""
        gateway.abandoned.wait(PATIENCE_S)
        return {"temperature_c": 21}

    with Watched(answer, tmp_path, tools=[get_weather]) as gateway:
        ran = follow(RECIPES[name].changed(change), gateway, tmp_path, proof)
    assert not gateway.abandoned.is_set()
    assert COMMANDS[name].last_words(ran.output) == learnt(proof, "21 °C")


CALLS_HOME: dict[str, tuple[tuple[str, str], ...]] = {
    "Codex": (("enabled = false", "enabled = true"), ("plugins = false\napps = false\n", "")),
    "Claude Code": (("export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\n", ""),),
    "Gemini CLI": (('"usageStatisticsEnabled": false', '"usageStatisticsEnabled": true'),),
    "Qwen Code": (('"usageStatisticsEnabled": false', '"usageStatisticsEnabled": true'),),
}
"""Recipes without what keeps the agent from asking hosts of its own."""


@pytest.mark.parametrize("name", CALLS_HOME)
def test_the_settings_that_keep_an_agent_at_home_are_needed(tmp_path: Path, proof: str, name: str) -> None:
    """Without them it tries to reach its vendor, and is seen to."""
    with Watched(answer, tmp_path) as gateway:
        ran = follow(RECIPES[name].changed(*CALLS_HOME[name]), gateway, tmp_path, proof)
    assert ran.outside != frozenset()


def without_usage(plan: Plan) -> Reply:
    """Answer like the model of the other tests, but never say what it cost."""
    return msgspec.structs.replace(answer(plan), usage=None)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_upstream_without_usage_ends_the_conversation(tmp_path: Path, proof: str, shape: str) -> None:
    """An agent that reads the numbers gets some; it neither fails nor asks again."""
    name, change = SHAPES[shape]
    with Watched(without_usage, tmp_path) as gateway:
        ran = follow(RECIPES[name].changed(change), gateway, tmp_path, proof)
    assert ran.code == 0, (ran.output, ran.errors)
    assert COMMANDS[name].last_words(ran.output) == learnt(proof)
    assert len([each for each in gateway.exchanges if each.method == "POST"]) <= 3


class Compacting:
    """A model whose first call is so expensive that codex has the conversation summarised before it goes on."""

    summary = "Summary: the note was read."

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(self, plan: Plan) -> Reply:
        """Call the tool at a price, summarise, then end."""
        self.plans.append(plan)
        match len(self.plans):
            case 1:
                return msgspec.structs.replace(answer(plan), usage=Usage(input_tokens=300_000, output_tokens=5))
            case 2:
                return Reply(text=self.summary)
            case _:
                return Reply(text="Done.", usage=Usage(input_tokens=100, output_tokens=5))


@pytest.mark.parametrize("name", ["Codex", "Codex with its own provider"])
def test_codex_goes_on_after_a_compaction(tmp_path: Path, proof: str, name: str) -> None:
    """With both providers the summary is made by the upstream, and is what the next request knows of the past."""
    recipe = RECIPES[name].changed(
        (
            "check_for_update_on_startup = false",
            "check_for_update_on_startup = false\nmodel_auto_compact_token_limit = 2000",
        )
    )
    model = Compacting()
    with Watched(model, tmp_path) as gateway:
        ran = follow(recipe, gateway, tmp_path, proof)
    assert ran.code == 0, (ran.output, ran.errors)
    assert COMMANDS[name].last_words(ran.output) == "Done."
    assert len(model.plans) == 3
    said = [text_of(item.content) for item in model.plans[2].items if isinstance(item, MessageItem)]
    assert [Compacting.summary in text for text in said].count(True) == 1


def test_gemini_cli_lets_a_router_choose_the_model(tmp_path: Path, proof: str) -> None:
    """Without `-m` its first question wants JSON of a schema; the answer is one, so it is asked once."""
    recipe = RECIPES["Gemini CLI"].changed(("-m demo ", ""))
    with Watched(answer, tmp_path) as gateway:
        ran = follow(recipe, gateway, tmp_path, proof)
    assert ran.code == 0, (ran.output, ran.errors)
    assert json.loads(ran.output)["response"] == learnt(proof)
    verbs = [exchange.path.rpartition(":")[2] for exchange in gateway.exchanges]
    assert verbs == ["generateContent", "streamGenerateContent", "streamGenerateContent"]
    assert gateway.refused == []


def _texts(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def test_what_claude_code_says_as_the_system_reaches_every_upstream(
    gateway: Watched, tmp_path: Path, proof: str
) -> None:
    """Its system messages stand after the first of the user's, where few upstreams take any; none is lost."""
    follow(RECIPES["Claude Code"], gateway, tmp_path, proof)
    [first, *_] = [json.loads(each.asked) for each in gateway.exchanges if each.path == "/v1/messages"]
    later = [message["content"] for message in first["messages"] if message["role"] == "system"]
    assert later
    told = "\n".join(_texts(json.loads(gateway.upstream.received[0].body)))
    blocks = [[content] if isinstance(content, str) else [block["text"] for block in content] for content in later]
    assert [text for texts in blocks for text in texts if text not in told] == []


def test_claude_code_finds_the_models(tmp_path: Path, proof: str) -> None:
    """Told to, it lists the gateway's models, and goes on with the one it was given."""
    recipe = RECIPES["Claude Code"].changed(
        (
            "export ANTHROPIC_API_KEY=unused",
            "export ANTHROPIC_API_KEY=unused CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY=1",
        )
    )
    with Watched(answer, tmp_path) as gateway:
        ran = follow(recipe, gateway, tmp_path, proof)
    assert ran.code == 0, (ran.output, ran.errors)
    assert json.loads(ran.output)["result"] == learnt(proof)
    assert ("GET", "/v1/models", 200) in [(each.method, each.path, each.status) for each in gateway.exchanges]
