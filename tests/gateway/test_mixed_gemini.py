"""Mixed turns of Gemini clients: the server's half is found again by ids, or by signatures where a client drops ids."""

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest

from gateway.gateway import Gateway
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.tools import tool

BOOK = {"functionDeclarations": [{"name": "book_table", "parametersJsonSchema": {"type": "object"}}]}
ASK = {"role": "user", "parts": [{"text": "Weather, and a table please."}]}
CALLS = (
    ReplyCall(id="call_book", name="book_table", args={"seats": 2}),
    ReplyCall(id="call_paris", name="look_up", args={"city": "Paris"}),
)


@tool(effect="read")
def look_up(city: str) -> str:
    """Look something up."""
    return f"{city}: sunny"


def generate(gateway: Gateway, contents: list[Any], *, streams: bool) -> list[dict[str, Any]]:
    """Return the parts of an answer."""
    method = "streamGenerateContent?alt=sse" if streams else "generateContent"
    body = json.dumps({"contents": contents, "tools": [BOOK]}).encode()
    request = Request(f"{gateway.origin}/v1beta/models/script:{method}", body, {"content-type": "application/json"})
    with urlopen(request, timeout=20) as answer:
        text = answer.read().decode()
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")] if streams else [text]
    answers = [json.loads(line) for line in lines]
    return [part for each in answers for part in each["candidates"][0]["content"]["parts"]]


def without_ids(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of calls as AI SDK sends them back: without ids, with signatures."""
    calls = [part for part in parts if "functionCall" in part]
    return [
        {**part, "functionCall": {name: value for name, value in part["functionCall"].items() if name != "id"}}
        for part in calls
    ]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("order", [CALLS, CALLS[::-1]], ids=["client-first", "server-first"])
def test_a_client_that_drops_ids_keeps_the_servers_half(order: Any, streams: bool, tmp_path: Path) -> None:
    """The id travels in the signature of the call, and both halves meet again upstream in the order of the calls."""
    script = Script(turns=(ScriptTurn(calls=order), ScriptTurn(text="All done.")))
    with Gateway(script, tmp_path, tools=[look_up]) as gateway:
        replayed = without_ids(generate(gateway, [ASK], streams=streams))
        assert [part["functionCall"]["name"] for part in replayed] == ["book_table"]
        result = {"functionResponse": {"name": "book_table", "response": {"output": "booked"}}}
        contents = [ASK, {"role": "model", "parts": replayed}, {"role": "user", "parts": [result]}]
        parts = generate(gateway, contents, streams=streams)
        assert "".join(part.get("text", "") for part in parts) == "All done."
        sent = msgspec.json.decode(gateway.upstream.received[-1].body)["messages"]
        wanted = [call.id for call in order]
        assert [call["id"] for call in sent[1]["tool_calls"]] == wanted
        assert [message["tool_call_id"] for message in sent[2:]] == wanted
        told = {message["tool_call_id"]: message["content"] for message in sent[2:]}
        assert told["call_book"] == "booked"
        assert "Paris: sunny" in told["call_paris"]


def test_a_client_that_drops_signatures_too_is_answered_all_the_same(tmp_path: Path) -> None:
    """Its own call and result reach the model; what it does not name cannot be found."""
    script = Script(turns=(ScriptTurn(calls=CALLS), ScriptTurn(text="All done.")))
    with Gateway(script, tmp_path, tools=[look_up]) as gateway:
        calls = without_ids(generate(gateway, [ASK], streams=False))
        bare = [{"functionCall": part["functionCall"]} for part in calls]
        result = {"functionResponse": {"name": "book_table", "response": {"output": "booked"}}}
        contents = [ASK, {"role": "model", "parts": bare}, {"role": "user", "parts": [result]}]
        generate(gateway, contents, streams=False)
        sent = msgspec.json.decode(gateway.upstream.received[-1].body)["messages"]
        assert [call["function"]["name"] for call in sent[1]["tool_calls"]] == ["book_table"]
        assert sent[2]["content"] == "booked"
