"""Sessions over real HTTP: begun on one gateway, found, forked and gone on with on another, whatever the upstream."""

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.gateway import Gateway
from person import person_headers
from treadle import tool
from treadle.journal.audit_verification import audit_export
from treadle.journal.jsonl_export import read_runs
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall

TURNS = (
    ScriptTurn(reasoning="Look it up.", calls=(ReplyCall(name="get_price", args={"article": "A7"}),)),
    ScriptTurn(text="It costs 12.5."),
)


@tool(effect="read")
def get_price(article: str) -> float:
    """Tell a price."""
    return 12.5


def sessions(gateway: Gateway, method: str, path: str = "", **given: Any) -> httpx2.Response:
    """Call the API of sessions."""
    where = f"{gateway.origin}/treadle/v1/sessions{path}"
    return httpx2.request(method, where, headers=person_headers(), timeout=20, **given)


def say(gateway: Gateway, session: str, text: str) -> None:
    """Say something in a session and read the answer to its end."""
    body = {"input": text, "session": session, "stream": True}
    answer = httpx2.post(f"{gateway.origin}/treadle/v1/runs", json=body, timeout=20)
    assert "run.ended" in answer.text


def asked(gateway: Gateway) -> list[Any]:
    """Return the messages of the last request that the Chat upstream got."""
    return msgspec.json.decode(gateway.upstream.received[-1].body)["messages"]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_a_session_goes_on_exactly_where_it_was(tmp_path: Path, protocol: str) -> None:
    """The call, its result and the answer of a first process are what the model reads in the second."""
    with Gateway(Script(turns=TURNS), tmp_path, tools=[get_price], protocol=protocol) as gateway:
        say(gateway, "shop", "What is A7?")
    with Gateway(Script(turns=(ScriptTurn(text="Fine."),)), tmp_path, tools=[get_price]) as gateway:
        say(gateway, "shop", "Thanks!")
        read = asked(gateway)
    assert [message["role"] for message in read] == ["user", "assistant", "tool", "assistant", "user"]
    assert read[1]["tool_calls"][0]["function"] == {"name": "get_price", "arguments": '{"article":"A7"}'}
    assert read[1]["tool_calls"][0]["id"] == read[2]["tool_call_id"]
    assert (read[2]["content"], read[3]["content"], read[4]["content"]) == ("12.5", "It costs 12.5.", "Thanks!")


def test_a_fork_and_its_source_part_ways(tmp_path: Path) -> None:
    """Each has what was said before the fork, and only its own after it; both can be found and exported."""
    turns = (*TURNS, ScriptTurn(text="To the left."), ScriptTurn(text="To the right."))
    with Gateway(Script(turns=turns), tmp_path, tools=[get_price]) as gateway:
        say(gateway, "left", "What is A7?")
        forked = sessions(gateway, "POST", "/left/fork", json={"name": "right"})
        assert forked.status_code == 201
        say(gateway, "left", "Which way?")
        say(gateway, "right", "Which way?")
        assert [message["content"] for message in asked(gateway)][-2:] == ["It costs 12.5.", "Which way?"]
        found = sessions(gateway, "GET", params={"search": "to the right"}).json()
        assert [row["name"] for row in found["sessions"]] == ["right"]
        exported = sessions(gateway, "GET", f"/{forked.json()['id']}/export")
        runs = list(read_runs(exported.content.splitlines(keepends=True)))
        assert [audit_export(run).problems for run in runs] == [(), ()]
        assert sessions(gateway, "DELETE", "/left").status_code == 204
        kept = sessions(gateway, "GET", "/right").json()["messages"]
        assert kept[-1]["content"] == "To the right."
