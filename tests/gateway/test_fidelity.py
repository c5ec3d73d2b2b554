"""Strict fidelity over real HTTP: what every upstream is really told is never refused, what would be lost always is."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.apis import APIS, BOUND_S
from gateway.gateway import Gateway
from treadle.providers.fakes.scripted_model import Script, ScriptTurn

UPSTREAMS = ("chat", "responses", "messages", "gemini")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "name": "answer", "schema": SCHEMA}

CARRIED: dict[str, dict[str, Any]] = {
    "chat": {"max_tokens": 77, "response_format": {"type": "json_schema", "json_schema": {**FORM, "strict": True}}},
    "responses": {"max_output_tokens": 77, "text": {"format": {**FORM, "strict": True}}},
    "messages": {"max_tokens": 77, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "gemini": {
        "generationConfig": {
            "maxOutputTokens": 77,
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
        }
    },
}
"""Options of each API that every upstream has a place for, though each spells them otherwise."""

LOST: dict[str, tuple[dict[str, Any], str]] = {
    "chat": ({"logit_bias": {"50256": -100}}, "logit_bias"),
    "responses": ({"truncation": "auto"}, "truncation"),
    "messages": ({"context_management": {"edits": []}}, "context_management"),
    "gemini": ({"safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT"}]}, "safetySettings"),
}
"""An option that only upstreams of the client's own API know, and the name by which its loss is told."""


def ask(gateway: Gateway, api: str, more: dict[str, Any], *, streams: bool, strict: str) -> httpx2.Response:
    """Ask with more options, as strictly as the header says."""
    asked = APIS[api]
    body = asked.content(stream=streams, **more)
    headers = {"x-treadle-strict-fidelity": strict}
    return httpx2.post(asked.url(gateway, stream=streams), json=body, headers=headers, timeout=BOUND_S)


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
def test_a_strict_client_gets_what_every_upstream_is_told(
    api: str, upstream: str, streams: bool, tmp_path: Path
) -> None:
    """The bound and the schema stand in the body that the upstream got, and nothing is said to be dropped."""
    with Gateway(Script(turns=(ScriptTurn(text='{"a":"b"}'),)), tmp_path, protocol=upstream) as gateway:
        answer = ask(gateway, api, CARRIED[api], streams=streams, strict="true")
        assert answer.status_code == 200, answer.text
        assert "dropped" not in answer.headers["x-treadle-fidelity"]
        (sent,) = gateway.upstream.received
    body = json.loads(sent.body)
    bounds = (body.get("max_tokens"), body.get("max_completion_tokens"), body.get("max_output_tokens"))
    assert 77 in (*bounds, body.get("generationConfig", {}).get("maxOutputTokens"))
    assert json.dumps(SCHEMA["properties"]) in json.dumps(body)


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
def test_what_would_be_lost_is_refused_by_name(api: str, upstream: str, streams: bool, tmp_path: Path) -> None:
    """Before anything is sent, in the client's own envelope; its own API's upstreams are told it as it is."""
    more, field = LOST[api]
    with Gateway(Script(turns=(ScriptTurn(text="Fine."),)), tmp_path, protocol=upstream) as gateway:
        answer = ask(gateway, api, more, streams=streams, strict="true")
        received = list(gateway.upstream.received)
    if api == upstream:
        assert answer.status_code == 200, answer.text
        assert json.loads(received[0].body)[field] == more[field]
        return
    assert answer.status_code == 400, answer.text
    assert received == []
    error = answer.json()["error"]
    assert field in error["message"]
    own = {"chat": "param", "responses": "param", "messages": "type", "gemini": "status"}
    assert own[api] in error
    assert (answer.json().get("type") == "error") == (api == "messages")


@pytest.mark.parametrize("api", APIS)
def test_a_client_that_is_not_strict_is_told_of_the_loss(api: str, tmp_path: Path) -> None:
    """In short in the header, and answered all the same."""
    upstream = "gemini" if api == "chat" else "chat"
    with Gateway(Script(turns=(ScriptTurn(text="Fine."),)), tmp_path, protocol=upstream) as gateway:
        answer = ask(gateway, api, LOST[api][0], streams=False, strict="false")
    assert answer.status_code == 200
    assert "dropped=1" in answer.headers["x-treadle-fidelity"]


def test_the_header_says_otherwise_than_the_settings(tmp_path: Path) -> None:
    """A gateway that is strict by itself lets a client be lax, and is strict where nothing is said."""
    script = Script(turns=(ScriptTurn(text="Fine."),))
    more, _ = LOST["messages"]
    with Gateway(script, tmp_path, strict_fidelity=True) as gateway:
        assert ask(gateway, "messages", more, streams=False, strict="").status_code == 400
        assert ask(gateway, "messages", more, streams=False, strict="false").status_code == 200
