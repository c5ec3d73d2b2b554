"""Calls that a model writes as text, on every pair of protocols: clients see calls, the loop runs them."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from gateway.gateway import Gateway
from gateway.judges import JUDGES, TOOL_NAME, Seen, close_clients
from treadle.cli.dialect_rendering import render
from treadle.config import Settings
from treadle.config.settings import ApprovalsSection, RepairSection
from treadle.core.items import CallItem, ResultItem, text_of
from treadle.core.journal_entries import item_of_entry
from treadle.core.plan import Plan
from treadle.core.usage import Usage
from treadle.protocols.text_calls.dialect_table import BY_ID
from treadle.providers.fakes.scripted_reply import Reply
from treadle.tools import tool

UPSTREAMS = ("chat", "responses", "messages", "gemini")
USAGE = Usage(input_tokens=11, output_tokens=7)
ARGUMENTS = {"place": 'Café ☕ "Zoë" </b>', "seats": 2}
CALL = (TOOL_NAME, json.dumps(ARGUMENTS, ensure_ascii=False))
SHOWN = ("hermes_json", "qwen3_coder", "glm47", "kimi_k2", "anthropic_invoke", "harmony", "gemma4")
"""Dialects of each way of reading; all others are read by the same ways."""


def text_of_call(dialect: str, name: str = TOOL_NAME) -> str:
    """Return a call in a dialect."""
    return render(BY_ID[dialect], [(name, ARGUMENTS if name == TOOL_NAME else {"city": "Paris"})])


REPLIES: dict[str, Reply] = {
    **{dialect: Reply(text=f"One moment.\n{text_of_call(dialect)}", usage=USAGE) for dialect in SHOWN},
    "fence": Reply(text=f"```\n{text_of_call('hermes_json')}\n```\n", usage=USAGE),
    "length": Reply(text=f"So: {text_of_call('function_json')}", finish="length", usage=USAGE),
    "server": Reply(text=text_of_call("hermes_json", "read_weather"), usage=USAGE),
    "effects": Reply(text=text_of_call("hermes_json", "set_alarm"), usage=USAGE),
}
EXPECTED: dict[str, Seen] = {
    **{dialect: Seen(text="One moment.\n", calls=(CALL,), stop="calls", usage=(11, 7)) for dialect in SHOWN},
    "fence": Seen(text=REPLIES["fence"].text, usage=(11, 7)),
    "length": Seen(text=REPLIES["length"].text, stop="length", usage=(11, 7)),
    "server": Seen(text="It said: sunny in Paris", usage=(22, 14)),
    "effects": Seen(text="It said: denied", usage=(22, 14)),
}


@tool(effect="read")
def read_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


@tool(effect="write")
def set_alarm(city: str) -> str:
    """Set an alarm."""
    return f"set in {city}"


def answer(plan: Plan) -> Reply:
    """Play the scenario that the model is named after; a result is told again."""
    last = plan.items[-1]
    if isinstance(last, ResultItem):
        said = text_of(last.output)
        return Reply(text="It said: " + ("denied" if "denied" in said else said.strip('"')), usage=USAGE)
    return REPLIES[plan.model]


CUT = [pytest.param(f"{name}-7", marks=pytest.mark.exhaustive) for name in UPSTREAMS]


@pytest.fixture(scope="module", params=[*(f"{name}-0" for name in UPSTREAMS), *CUT])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Start a Treadle in front of an upstream of one protocol that sends chunks of one size (0: whole)."""
    protocol, _, size = request.param.partition("-")
    folder: Path = tmp_path_factory.mktemp("dialects")
    tools = (read_weather, set_alarm)
    size_of = int(size) or None
    nobody = ApprovalsSection(enabled=False)
    with Gateway(answer, folder, tools=tools, chunk_bytes=size_of, protocol=protocol, approvals=nobody) as running:
        yield running
        close_clients()


@pytest.mark.parametrize("client", JUDGES)
@pytest.mark.parametrize("scenario", REPLIES)
def test_a_call_in_text_is_a_call_for_every_client_of_every_upstream(
    gateway: Gateway, client: str, scenario: str
) -> None:
    """Streamed, and whole where the upstream sends in one piece."""
    assert JUDGES[client](gateway, scenario, True) == EXPECTED[scenario]
    if gateway.chunk_bytes is None:
        assert JUDGES[client](gateway, scenario, False) == EXPECTED[scenario]


def ask(gateway: Gateway, model: str) -> str:
    """Ask a model by plain HTTP and return its run's id."""
    body = {"model": model, "messages": [{"role": "user", "content": "Go."}]}
    reply = httpx2.post(f"{gateway.url}/chat/completions", json=body, timeout=30)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]


def test_a_recovery_is_journalled_counted_and_can_be_undone(tmp_path: Path) -> None:
    """The stored call keeps what the model wrote, a note names the dialect, and a metric counts it."""
    with Gateway(answer, tmp_path, tools=(read_weather, set_alarm)) as gateway:
        assert ask(gateway, "server") == "It said: sunny in Paris"
        metrics = httpx2.get(f"{gateway.origin}/metrics", timeout=30).text
        assert 'treadle_recovered_calls_total{dialect="hermes_json"} 1.0' in metrics
        store = gateway.runtime.store
        (run,) = gateway.ask(store.list_runs())
        entries = gateway.ask(store.entries(run.id))
    (note,) = [entry for entry in entries if entry.kind == "note"]
    assert "hermes_json" in (note.content or "")
    (call,) = [item_of_entry(entry) for entry in entries if entry.kind == "tool_call"]
    assert isinstance(call, CallItem)
    assert (call.origin, call.raw) == ("recovered", text_of_call("hermes_json", "read_weather"))


@pytest.mark.parametrize(("effects", "said"), [("allow", "set in Paris"), ("deny", "denied"), ("ask", "denied")])
def test_what_a_recovered_call_with_effects_may_do_is_configured(tmp_path: Path, effects: str, said: str) -> None:
    """Asking means no while there is nobody to ask."""
    repair = RepairSection(effects=effects)  # type: ignore[arg-type]
    nobody = ApprovalsSection(enabled=False)
    with Gateway(answer, tmp_path, tools=(read_weather, set_alarm), repair=repair, approvals=nobody) as gateway:
        assert ask(gateway, "effects") == f"It said: {said}"


def test_tiers_are_configured(tmp_path: Path) -> None:
    """With no tier at all text stays text."""
    with Gateway(answer, tmp_path, tools=(read_weather,), repair=RepairSection(tiers=())) as gateway:
        assert ask(gateway, "server") == text_of_call("hermes_json", "read_weather")


def test_the_settings_say_the_same_by_default() -> None:
    """Native and marked dialects are on, and effects are asked for."""
    assert Settings().repair == RepairSection(tiers=("native", "marked"), effects="ask")
    assert CallItem(call_id="c", name="n").origin == "model"
