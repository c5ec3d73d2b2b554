"""A whole Treadle with MCP servers in its configuration: a model calls their tools, and secrets stay secret."""

import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.gateway import Gateway
from peers.visit import HERE
from treadle.config import Mcp
from treadle.core.items import ResultItem, text_of
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall

STALL_S_MAX = 5.0
"""Beside other tests it is under a second; a loop that matches such a pattern itself stands for sixteen."""


def answer(plan: Plan) -> Reply:
    """Call the server's tool, then tell what it said."""
    last = plan.items[-1]
    if isinstance(last, ResultItem):
        return Reply(text=f"it said {text_of(last.output)}")
    return Reply(calls=(ReplyCall(name="mcp__bad__act"),))


def call_back(plan: Plan) -> Reply:
    """Call both tools with values made for their patterns, then tell what came of it."""
    results = [text_of(item.output) for item in plan.items if isinstance(item, ResultItem)]
    if results:
        return Reply(text=" | ".join(result[:300] for result in results))
    hard = {"a": ["a" * 60] * 2_000}
    return Reply(calls=(ReplyCall(name="mcp__bad__act"), ReplyCall(name="mcp__bad__hard", args=hard)))


def server(mode: str, **more: object) -> Mcp:
    """Configure the bad server in one of its modes."""
    return Mcp(name="bad", command=(sys.executable, str(HERE / "hostile.py"), mode, ""), **more)  # type: ignore[arg-type]


def ask(gateway: Gateway) -> str:
    """Ask the model over HTTP, and return what it answers."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "act"}]}).encode()
    request = urllib.request.Request(
        f"{gateway.url}/chat/completions", body, {"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def test_a_model_calls_a_tool_of_a_server_through_the_gateway(tmp_path: Path) -> None:
    """It is offered beside the others, run, journalled, and listed with its source."""
    with Gateway(answer, tmp_path, mcp=(server("ok"),)) as gateway:
        assert ask(gateway) == "it said done"
        with urllib.request.urlopen(f"{gateway.origin}/treadle/v1/tools", timeout=30) as response:
            listed = json.load(response)
        assert "mcp:bad" in json.dumps(listed)
    assert (tmp_path / "mcp-tools.json").exists()


def test_a_server_that_is_down_does_not_keep_a_gateway_from_starting(tmp_path: Path) -> None:
    """The model learns that the tool is not there."""
    gone = Mcp(name="bad", command=("/no/such/program",))
    with Gateway(answer, tmp_path, mcp=(gone,)) as gateway:
        assert "unknown_tool" in ask(gateway)


def test_secrets_reach_the_server_and_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that the configuration names is handed on by name, and redacted wherever it would be shown."""
    monkeypatch.setenv("BAD_TOKEN", "token-123456")
    with Gateway(answer, tmp_path, mcp=(server("environment", env_from=("BAD_TOKEN",)),)) as gateway:
        assert "token-123456" in ask(gateway)
        assert "token-123456" not in gateway.runtime.redactor.text("the key is token-123456")


def test_a_schema_made_to_block_holds_up_nobody(tmp_path: Path) -> None:
    """Patterns that take exponential time and schemas that are too deep: others are answered meanwhile, a tool that
    cannot be checked within bounds is left out by name and reason, and a call that cannot be fails in words."""
    with Gateway(call_back, tmp_path, mcp=(server("patterns"),)) as gateway, ThreadPoolExecutor(1) as beside:
        with urllib.request.urlopen(f"{gateway.origin}/treadle/v1/mcp", timeout=30) as response:
            (listed,) = json.load(response)["servers"]
        answering = beside.submit(ask, gateway)
        waits: list[float] = []
        while not answering.done():
            began = time.monotonic()
            with urllib.request.urlopen(f"{gateway.origin}/healthz", timeout=30) as response:
                assert response.status == 200
            waits.append(time.monotonic() - began)
        said = answering.result()
    assert listed["left_out"].keys() == {"large", "deep"}
    assert "the pattern at /properties/a/items/pattern" in listed["left_out"]["large"]
    assert "nests deeper than 64 levels" in listed["left_out"]["deep"]
    assert "does not fit the schema that it declared" in said
    assert "The arguments do not fit the parameters of mcp__bad__hard" in said
    assert max(waits) < STALL_S_MAX
