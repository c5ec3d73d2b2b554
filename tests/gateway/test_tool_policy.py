"""Policies over real HTTP: what a route, a key and a rule let in, how often, and where tools ran."""

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.gateway import Gateway
from treadle import tool
from treadle.config import Route, Settings, ToolsSection
from treadle.config.settings import LocalSection, ToolRule
from treadle.core.items import ResultItem, text_message
from treadle.core.plan import Plan
from treadle.core.request import Request
from treadle.journal.journal_interface import RunRow
from treadle.providers.fakes.fake_server import Source
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.runs.dependencies import RunOverrides
from treadle.tools.sandbox import find_level

WAIT_S = 20.0


@tool(effect="read")
def get_price(article: str) -> str:
    """Tell a price."""
    return f"{article}: 12.5"


@tool(effect="read")
def get_stock(article: str) -> str:
    """Tell a stock."""
    return f"{article}: 7"


TOOLS = (get_price, get_stock)


class Ruled(Gateway):
    """A gateway with settings of its tools."""

    def __init__(self, source: Source, folder: Path, section: ToolsSection) -> None:
        super().__init__(source, folder, tools=TOOLS)
        self._section = section

    def _settings(self, url: str) -> Settings:
        return msgspec.structs.replace(super()._settings(url), tools=self._section)


def post(gateway: Gateway, path: str, body: dict[str, Any]) -> Any:
    """Post JSON and read JSON."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{gateway.origin}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return json.load(response)


def events(gateway: Gateway, run_id: str) -> list[dict[str, Any]]:
    """Return the events of a run."""
    with urllib.request.urlopen(f"{gateway.origin}/treadle/v1/runs/{run_id}/events", timeout=WAIT_S) as response:
        lines = response.read().decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def chat(model: str) -> dict[str, Any]:
    """Return a request of Chat Completions."""
    return {"model": model, "messages": [{"role": "user", "content": "go"}]}


def test_a_route_offers_only_the_tools_of_its_list(tmp_path: Path) -> None:
    """By name and by source; a model of another route has them all, and what is not offered is not run."""
    offered: dict[str, Sequence[str]] = {}

    def answer(plan: Plan) -> Reply:
        offered[plan.model] = [spec.name for spec in plan.tools]
        if isinstance(plan.items[-1], ResultItem):
            return Reply(text="done")
        return Reply(calls=(ReplyCall(name="get_stock", args={"article": "A7"}),))

    routes = (
        Route(model="narrow-*", upstream="script", tools=("get_price",)),
        Route(model="closed", upstream="script", tools=()),
        Route(model="by-source", upstream="script", tools=("python",)),
    )
    with Gateway(answer, tmp_path, tools=TOOLS, route=routes) as gateway:
        for model in ("narrow-1", "closed", "by-source", "free"):
            post(gateway, "/v1/chat/completions", chat(model))
        everything = ["get_price", "get_stock"]
        assert offered == {"narrow-1": ["get_price"], "closed": [], "by-source": everything, "free": everything}
        rows: list[RunRow] = list(gateway.ask(gateway.runtime.store.list_runs()))
        told = {row.model: events(gateway, row.id) for row in rows}
    codes = {
        model: [event["result"].get("rc", "ok") for event in each if event["type"] == "tool.finished"]
        for model, each in told.items()
    }
    assert codes == {"narrow-1": ["unknown_tool"], "closed": ["unknown_tool"], "by-source": ["ok"], "free": ["ok"]}


def test_the_list_of_a_key_narrows_what_the_route_lets_in(tmp_path: Path) -> None:
    """A tool must be on both lists."""
    offered: list[list[str]] = []

    def answer(plan: Plan) -> Reply:
        offered.append([spec.name for spec in plan.tools])
        return Reply(text="done")

    route = Route(model="*", upstream="script", tools=("get_*",))
    with Gateway(answer, tmp_path, tools=TOOLS, route=(route,)) as gateway:

        async def run(allowed: tuple[str, ...] | None) -> None:
            request = Request(protocol="treadle", model="m", items=(text_message("user", "go"),))
            handle = await gateway.runtime.runs.start(request, key_id="k", instead=RunOverrides(allowed=allowed))
            await handle.wait()

        for allowed in (None, ("get_stock", "bash"), ("local",), ()):
            gateway.ask(run(allowed))
    assert offered == [["get_price", "get_stock"], ["get_stock"], [], []]


def test_events_and_journal_say_where_each_tool_ran(tmp_path: Path) -> None:
    """A function in this process, a file tool below its root, a command at the level that was found."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "note.txt").write_text("hello")
    calls = (
        ReplyCall(name="get_price", args={"article": "A7"}),
        ReplyCall(name="file_read", args={"path": "note.txt"}),
        ReplyCall(name="bash", args={"command": "echo hi"}),
        ReplyCall(name="nobody", args={}),
    )

    def answer(plan: Plan) -> Reply:
        return Reply(text="done") if isinstance(plan.items[-1], ResultItem) else Reply(calls=calls)

    local = LocalSection(
        enabled=("file_read", "bash"), root=str(tmp_path / "root"), policy="trust", allow_unconfined=True
    )
    with Ruled(answer, tmp_path, ToolsSection(local=local)) as gateway:
        post(gateway, "/v1/chat/completions", chat("m"))
        (row,) = gateway.ask(gateway.runtime.store.list_runs())
        told = [event for event in events(gateway, row.id) if event["type"] == "tool.finished"]
        entries = gateway.ask(gateway.runtime.store.entries(row.id))
    words = {event["call"]["name"]: event.get("sandbox", "") for event in told}
    assert words == {"get_price": "none", "file_read": "root", "bash": find_level().name, "nobody": ""}
    kept = {
        entry.name: json.loads(bytes(entry.data or b"{}")).get("sandbox", "")
        for entry in entries
        if entry.kind == "tool_result"
    }
    assert kept == words


def test_a_rule_bounds_how_often_a_tool_is_called(tmp_path: Path) -> None:
    """The model reads that it was not run, and can go on."""
    calls = tuple(ReplyCall(name="get_price", args={"article": name}) for name in ("A", "B", "C"))

    def answer(plan: Plan) -> Reply:
        return Reply(text="done") if isinstance(plan.items[-1], ResultItem) else Reply(calls=calls)

    rules = (ToolRule(match=("get_price",), rate_per_min=2),)
    with Ruled(answer, tmp_path, ToolsSection(rule=rules)) as gateway:
        answered = post(gateway, "/v1/chat/completions", chat("m"))
        (row,) = gateway.ask(gateway.runtime.store.list_runs())
        told = [event for event in events(gateway, row.id) if event["type"] == "tool.finished"]
    assert answered["choices"][0]["message"]["content"] == "done"
    texts = [event["result"]["output"][0]["text"] for event in told]
    assert texts[:2] == ["A: 12.5", "B: 12.5"]
    assert '"rate_limited"' in texts[2]
