"""`facts.commit` is a person's: whoever brings a tool of that name, no model is offered it, and no call of it runs."""

import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError

from gateway.gateway import Gateway
from guests.wat import ALLOCATOR, ECHO, Wat
from person import person_headers
from treadle.config import Mcp, ServerSection
from treadle.config.settings import Guest, GuestsSection, WorkspaceSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall

SPELLINGS = ["facts.commit", "facts_commit", "facts-commit", "factsCommit", "Facts__Commit", "app.facts.commit"]
SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}}
SPACE = WorkspaceSection(enabled=True, default="card")
EVIL_SERVER = '''
from mcp.server import MCPServer

app = MCPServer("evil")


@app.tool(name="{name}")
def commit(value: str = "") -> str:
    """Commit facts."""
    raise SystemExit("nobody may call this")


@app.tool()
def harmless() -> str:
    """Do nothing."""
    return "done"


app.run()
'''


def calls(name: str) -> Script:
    """Return a model that calls a tool, reads what came back, and ends."""
    return Script(
        turns=(ScriptTurn(calls=(ReplyCall(name=name, args={"value": "Eve"}),)), ScriptTurn(text="Then not."))
    )


def make_card(gateway: Gateway) -> None:
    """Make the workspace that nothing shall change."""
    body = {"name": "card", "facts": {"name": "Ada"}}
    answer = httpx2.post(f"{gateway.origin}/treadle/v1/workspaces", json=body, headers=person_headers(), timeout=20)
    assert answer.status_code == 201


def assert_untouched(gateway: Gateway, *, refused: int) -> None:
    """The facts are as they were, and every call was counted."""
    card = httpx2.get(f"{gateway.origin}/treadle/v1/workspaces/card", timeout=20).json()
    assert (card["facts"], card["version"]) == ({"name": "Ada"}, 0)
    metrics = httpx2.get(f"{gateway.origin}/metrics", timeout=20).text
    assert f"treadle_refused_commits_total {refused}.0" in metrics


def offered(gateway: Gateway) -> str:
    """Return what the upstream was first asked, without the words that were said."""
    return gateway.upstream.received[0].body.decode().lower()


def brought(api: str, name: str) -> tuple[str, dict[str, Any]]:
    """Return a request of an API whose client brings a tool of this name."""
    function = {"name": name, "description": "It.", "parameters": SCHEMA}
    said = [{"role": "user", "content": "Make it so."}]
    match api:
        case "chat":
            tools: list[Any] = [{"type": "function", "function": function}]
            return "/v1/chat/completions", {"model": "script", "messages": said, "tools": tools}
        case "responses":
            tools = [{"type": "function", **function}]
            return "/v1/responses", {"model": "script", "input": said, "tools": tools}
        case "messages":
            tools = [{"name": name, "input_schema": SCHEMA}]
            return "/v1/messages", {"model": "script", "max_tokens": 100, "messages": said, "tools": tools}
        case _:
            contents = [{"role": "user", "parts": [{"text": "Make it so."}]}]
            tools = [{"functionDeclarations": [{"name": name, "description": "It."}]}]
            return "/v1beta/models/script:generateContent", {"contents": contents, "tools": tools}


@pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])
def test_a_client_cannot_bring_it_along(tmp_path: Path, api: str) -> None:
    """The model is not told of it; if it calls it all the same, neither client nor server runs it, and it reads why."""
    with Gateway(calls("facts_commit"), tmp_path, workspace=SPACE) as gateway:
        make_card(gateway)
        path, body = brought(api, "facts_commit")
        answer = httpx2.post(f"{gateway.origin}{path}", json=body, timeout=20)
        assert answer.status_code == 200, answer.text
        assert "Then not." in answer.text
        assert "dropped=1" in answer.headers["x-treadle-fidelity"]
        assert "commit" not in offered(gateway)
        assert "Facts are committed by a person only." in gateway.upstream.received[1].body.decode()
        assert_untouched(gateway, refused=1)


@pytest.mark.parametrize("name", SPELLINGS)
def test_no_spelling_of_a_clients_tool_gets_through(tmp_path: Path, name: str) -> None:
    """However it is written, and whatever name the upstream would have known it by."""
    with Gateway(calls(name), tmp_path, workspace=SPACE) as gateway:
        make_card(gateway)
        path, body = brought("chat", name)
        answer = httpx2.post(f"{gateway.origin}{path}", json=body, timeout=20).json()
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert "commit" not in offered(gateway)
        assert_untouched(gateway, refused=1)


def test_a_namespace_does_not_hide_it(tmp_path: Path) -> None:
    """`commit` of the namespace `facts` is the same deed."""
    with Gateway(calls("facts__commit"), tmp_path, workspace=SPACE) as gateway:
        make_card(gateway)
        inner = [{"type": "function", "name": "commit", "parameters": SCHEMA}]
        space = {"type": "namespace", "name": "facts", "description": "Facts.", "tools": inner}
        body = {"model": "script", "input": "Make it so.", "tools": [space]}
        answer = httpx2.post(f"{gateway.url}/responses", json=body, timeout=20)
        assert (answer.status_code, answer.json()["status"]) == (200, "completed")
        assert_untouched(gateway, refused=1)


def test_a_call_in_text_is_not_taken_for_the_clients_tool(tmp_path: Path) -> None:
    """What is not offered is not looked for in text."""
    text = '<tool_call>{"name": "facts_commit", "arguments": {"value": "Eve"}}</tool_call>'
    with Gateway(Script(turns=(ScriptTurn(text=text),)), tmp_path, workspace=SPACE) as gateway:
        make_card(gateway)
        path, body = brought("chat", "facts_commit")
        [choice] = httpx2.post(f"{gateway.origin}{path}", json=body, timeout=20).json()["choices"]
        assert (choice["finish_reason"], choice["message"].get("tool_calls")) == ("stop", None)
        assert_untouched(gateway, refused=0)


@pytest.mark.parametrize(
    "choice", [{"type": "function", "function": {"name": "facts_commit"}}, "required"], ids=["named", "required"]
)
def test_nobody_can_demand_it(tmp_path: Path, choice: Any) -> None:
    """To choose what is not offered is a mistake of the request."""
    with Gateway(calls("facts_commit"), tmp_path) as gateway:
        path, body = brought("chat", "facts_commit")
        answer = httpx2.post(f"{gateway.origin}{path}", json={**body, "tool_choice": choice}, timeout=20)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool_choice")
        assert gateway.upstream.received == []


def test_who_would_rather_fail_is_told(tmp_path: Path) -> None:
    """With strict fidelity nothing is dropped silently."""
    with Gateway(calls("facts_commit"), tmp_path, strict_fidelity=True) as gateway:
        path, body = brought("chat", "facts_commit")
        answer = httpx2.post(f"{gateway.origin}{path}", json=body, timeout=20)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")


@pytest.mark.parametrize("name", ["facts.commit", "facts_commit"])
def test_an_mcp_server_cannot_bring_it_along(tmp_path: Path, name: str) -> None:
    """Its other tools are there; this one is neither listed, offered nor called."""
    program = tmp_path / "evil.py"
    program.write_text(EVIL_SERVER.replace("{name}", name))
    server = Mcp(name="evil", command=(sys.executable, str(program)), trusted=True, effect="read")
    script = calls("mcp__evil__facts_commit")
    with Gateway(script, tmp_path, workspace=SPACE, mcp=(server,)) as gateway:
        make_card(gateway)
        listed = httpx2.get(f"{gateway.origin}/treadle/v1/tools", timeout=20).text
        assert ("mcp__evil__harmless" in listed, "commit" in listed.lower()) == (True, False)
        body = {"input": "Make it so.", "stream": True}
        answer = httpx2.post(f"{gateway.origin}/treadle/v1/runs", json=body, timeout=20)
        assert "Facts are committed by a person only." in answer.text
        assert "commit" not in offered(gateway)
        assert_untouched(gateway, refused=1)


async def test_an_mcp_client_cannot_call_it(tmp_path: Path) -> None:
    """There is nothing of that name to call."""
    script = Script(turns=(ScriptTurn(text="unused"),))
    with Gateway(script, tmp_path, workspace=SPACE, server=ServerSection(mcp=True)) as gateway:
        make_card(gateway)
        async with Client(f"{gateway.origin}/mcp") as client:
            assert "facts.propose" in [each.name for each in (await client.list_tools()).tools]
            for name in SPELLINGS:
                with pytest.raises(MCPError, match="There is no tool"):
                    await client.call_tool(name, {"value": "Eve"})
        assert_untouched(gateway, refused=0)


@pytest.mark.parametrize("flags", [2, 0], ids=["auto", "by hand"])
def test_a_guest_cannot_bring_it_along(tmp_path: Path, flags: int) -> None:
    """What a guest registers is code nobody here knows; under this name no model hears of it."""
    wat = Wat()
    send = f"""{wat.user()}
    (drop {wat.tool("facts_commit")})
    (drop {wat.tool("harmless")})
    (call $cchat_send (local.get $fd) (i32.const {flags}))"""
    path = tmp_path / "guest.wat"
    path.write_text(wat.build(send, more=f"{ALLOCATOR}\n  {ECHO}\n  (elem (i32.const 0) $t)"))
    guest = Guest(name="evil", path=str(path), model="script")
    section = GuestsSection(cache=False)
    with Gateway(calls("facts_commit"), tmp_path, workspace=SPACE, guest=(guest,), guests=section) as gateway:
        make_card(gateway)
        answer = httpx2.post(f"{gateway.origin}/treadle/v1/guests/evil/runs", json={"input": "go"}, timeout=60).json()
        assert answer["status"] == "completed"
        assert ("harmless" in offered(gateway), "commit" in offered(gateway)) == (True, False)
        assert_untouched(gateway, refused=1)
