"""What a model said reaches clients as it was meant, over real HTTP: at a limit, under a choice, in a client's loop."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.apis import APIS, BOUND_S, text_of
from gateway.gateway import Gateway
from treadle.config.settings import LimitsSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.tools import tool

SCHEMA = {"type": "object", "properties": {}}
CALLED = ReplyCall(name="ring", args={})


@tool(effect="read")
def ring() -> str:
    """Ring the bell."""
    return "rung"


@tool(effect="idempotent")
def knock() -> str:
    """Knock at the door."""
    return "knocked"


def tools_of(api: str, *names: str) -> dict[str, Any]:
    """Return tools of the client as an API has them."""
    functions = [{"name": name, "description": "", "parameters": SCHEMA} for name in names]
    match api:
        case "chat":
            return {"tools": [{"type": "function", "function": each} for each in functions]}
        case "responses":
            return {"tools": [{"type": "function", **each} for each in functions]}
        case "messages":
            return {"tools": [{"name": name, "input_schema": SCHEMA} for name in names]}
        case _:
            return {"tools": [{"functionDeclarations": functions}]}


def ask(gateway: Gateway, api: str, *, stream: bool = False, **more: Any) -> httpx2.Response:
    """Ask an API with more fields."""
    asked = APIS[api]
    body = asked.content(stream=stream, **more)
    return httpx2.post(asked.url(gateway, stream=stream), json=body, timeout=BOUND_S)


def said(api: str, answer: httpx2.Response, *, stream: bool) -> str:
    """Return the text of an answer."""
    if stream:
        return text_of(api, answer.content)
    body = answer.json()
    match api:
        case "chat":
            return body["choices"][0]["message"].get("content") or ""
        case "responses":
            parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
            return "".join(part["text"] for part in parts)
        case "messages":
            return "".join(block["text"] for block in body["content"] if block["type"] == "text")
        case _:
            return "".join(part.get("text", "") for part in body["candidates"][0]["content"]["parts"])


LAST: dict[str, ScriptTurn] = {
    "nothing": ScriptTurn(text=" "),
    "a call": ScriptTurn(calls=(CALLED,)),
    "a call as text": ScriptTurn(text='<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>'),
}
REASON = "The same call was made 2 times in a row."
ANSWER = f"""{REASON} The model gave no final answer. 2 tool calls were answered before that:
- ring({{}}): rung
- ring({{}}): rung [limit_reached] {REASON} Stopping tool loop."""


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("api", APIS)
def test_at_a_limit_there_is_an_answer(api: str, last: str, stream: bool, tmp_path: Path) -> None:
    """A model that says nothing, or calls on in whatever form, leaves the last word to Treadle, in every API."""
    script = Script(turns=(ScriptTurn(calls=(CALLED,)), ScriptTurn(calls=(CALLED,)), LAST[last]))
    limits = LimitsSection(identical_repeats_max=2)
    with Gateway(script, tmp_path, tools=[ring], limits=limits) as gateway:
        answer = ask(gateway, api, stream=stream)
        assert answer.status_code == 200, answer.text
        assert said(api, answer, stream=stream).strip() == ANSWER
        assert json.loads(gateway.upstream.received[-1].body)["tool_choice"] == "none"


FORM = {"type": "object", "properties": {"rings": {"type": "integer"}}, "required": ["rings"]}
FORMS: dict[str, dict[str, Any]] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": FORM}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "answer", "schema": FORM}}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": FORM}}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": FORM}},
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("api", APIS)
def test_at_a_limit_nothing_is_said_in_words_where_the_answer_shall_be_json(
    api: str, stream: bool, tmp_path: Path
) -> None:
    """A client that parses the answer gets an error of its protocol that names the limit, and no text to parse."""
    script = Script(turns=(ScriptTurn(calls=(CALLED,)), ScriptTurn(calls=(CALLED,)), ScriptTurn(text=" ")))
    limits = LimitsSection(identical_repeats_max=2)
    with Gateway(script, tmp_path, tools=[ring], limits=limits) as gateway:
        answer = ask(gateway, api, stream=stream, **FORMS[api])
        assert "The model gave no final answer in the form" in answer.text
        assert REASON in answer.text
        assert "limit_reached" in answer.text or api in ("messages", "gemini")
        if stream:
            assert said(api, answer, stream=True).strip() == ""
        else:
            assert (answer.status_code, answer.headers["x-should-retry"]) == (422, "false")


@pytest.mark.parametrize("api", APIS)
def test_a_model_that_answers_in_json_at_a_limit_is_not_interrupted(api: str, tmp_path: Path) -> None:
    """Its answer is the client's, as without a limit."""
    script = Script(turns=(ScriptTurn(calls=(CALLED,)), ScriptTurn(calls=(CALLED,)), ScriptTurn(text='{"rings":2}')))
    with Gateway(script, tmp_path, tools=[ring], limits=LimitsSection(identical_repeats_max=2)) as gateway:
        assert json.loads(said(api, ask(gateway, api, **FORMS[api]), stream=False)) == {"rings": 2}


def test_a_calls_text_stays_where_the_client_wants_no_calls(tmp_path: Path) -> None:
    """Only Treadle's own closing question is looked through: an answer about calls is an answer."""
    text = 'Write <tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call> for it.'
    with Gateway(Script(turns=(ScriptTurn(text=text),)), tmp_path) as gateway:
        answer = ask(gateway, "chat", tool_choice="none", **tools_of("chat", "ring"))
        assert said("chat", answer, stream=False) == text


@pytest.mark.parametrize("api", APIS)
def test_a_call_that_was_not_offered_is_the_clients_to_answer(api: str, tmp_path: Path) -> None:
    """No server tool takes part, so the client gets what the model said, in one round."""
    invented = ScriptTurn(calls=(ReplyCall(name="invented", args={"a": 1}),))
    with Gateway(Script(turns=(invented,)), tmp_path) as gateway:
        answer = ask(gateway, api, **tools_of(api, "theirs"))
        assert answer.status_code == 200, answer.text
        assert '"invented"' in answer.text
        assert "unknown_tool" not in answer.text
        assert len(gateway.upstream.received) == 1


@pytest.mark.parametrize("upstream", ["chat", "responses", "messages", "gemini"])
def test_a_named_choice_leaves_the_upstream_no_other_tool(upstream: str, tmp_path: Path) -> None:
    """A server of one's own need not know choices by name: the tool goes out alone, and required. Gemini has names."""
    with Gateway(Script(turns=(ScriptTurn(calls=(CALLED,)),)), tmp_path, protocol=upstream) as gateway:
        choice = {"type": "function", "function": {"name": "ring"}}
        ask(gateway, "chat", tool_choice=choice, **tools_of("chat", "knock", "ring"))
        sent = json.loads(gateway.upstream.received[0].body)
    if upstream == "gemini":
        config = {"mode": "ANY", "allowedFunctionNames": ["ring"]}
        assert sent["toolConfig"]["functionCallingConfig"] == config
        return
    names = [(entry.get("function") or entry)["name"] for entry in sent["tools"]]
    wanted = {"type": "any"} if upstream == "messages" else "required"
    assert (names, sent["tool_choice"]) == (["ring"], wanted)


def test_no_other_server_tool_runs_under_a_named_choice(tmp_path: Path) -> None:
    """A model that calls another one reads why not, and is asked again."""
    other = ScriptTurn(calls=(ReplyCall(name="knock", args={}),))
    script = Script(turns=(other, ScriptTurn(calls=(CALLED,)), ScriptTurn(text="Rung.")))
    with Gateway(script, tmp_path, tools=[ring, knock]) as gateway:
        answer = ask(gateway, "chat", tool_choice={"type": "function", "function": {"name": "ring"}})
        assert said("chat", answer, stream=False) == "Rung."
        sent = [json.loads(each.body) for each in gateway.upstream.received]
    results = [message["content"] for message in sent[-1]["messages"] if message["role"] == "tool"]
    assert json.loads(results[0])["error"]["code"] == "denied"
    assert results[1] == "rung"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_mixed_turn_is_shown_in_the_order_of_the_model(stream: bool, tmp_path: Path) -> None:
    """The server's call came first, so it is the first item, though the client's was whole before it had run."""
    turn = ScriptTurn(calls=(CALLED, ReplyCall(name="theirs", args={})))
    with Gateway(Script(turns=(turn,)), tmp_path, tools=[ring]) as gateway:
        answer = ask(gateway, "responses", stream=stream, **tools_of("responses", "theirs"))
        lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        body = json.loads(lines[-1].removeprefix("data: "))["response"] if stream else answer.json()
        assert [item["type"] for item in body["output"]] == ["mcp_call", "function_call"]


REPAIRED: dict[str, list[dict[str, Any]]] = {
    "a call without a result": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}],
    "a result behind a message": [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"role": "user", "content": "wait"},
        {"type": "function_call_output", "call_id": "a", "output": "r"},
    ],
    "an id twice": [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "r"},
    ]
    * 2,
}


@pytest.mark.parametrize("upstream", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize("what", REPAIRED)
def test_an_answer_to_a_repaired_history_is_not_exact(what: str, upstream: str, tmp_path: Path) -> None:
    """The header counts it, and a strict client is refused instead."""
    history = [*REPAIRED[what], {"role": "user", "content": "go on"}]
    with Gateway(Script(turns=(ScriptTurn(text="ok"),)), tmp_path, protocol=upstream) as gateway:
        answer = ask(gateway, "responses", input=history)
        assert answer.status_code == 200, answer.text
        assert "repaired=1" in answer.headers["x-treadle-fidelity"]
        body = APIS["responses"].content(stream=False, input=history)
        strict = {"x-treadle-strict-fidelity": "true"}
        refused = httpx2.post(f"{gateway.url}/responses", json=body, headers=strict, timeout=BOUND_S)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_feature")
