"""The response object: what it says at the start, and that no key is ever missing."""

import json
from typing import Any

import msgspec
import pytest

from treadle.core.events import RunEnded, RunStarted
from treadle.core.ids import CountingIds
from treadle.core.request import Options, Request
from treadle.protocols.responses import Encoder, read_request

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1000.9)
REQUIRED = {
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
}
DEFAULTS: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1000,
    "status": "in_progress",
    "background": False,
    "completed_at": None,
    "error": None,
    "frequency_penalty": 0,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": "m",
    "output": [],
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": None,
    "user": None,
    "metadata": {},
}


def begun(**fields: Any) -> dict[str, Any]:
    """Return the response at the start of a run with these fields in its request."""
    return _of(read_request(json.dumps({"model": "m", "input": "hi", **fields}).encode()))


def _of(request: Request, *events: RunEnded) -> dict[str, Any]:
    encoder = Encoder(request, CountingIds())
    for event in (STARTED, *events):
        encoder.feed(event)
    return json.loads(encoder.body())


def test_every_required_key_is_there_with_the_official_default() -> None:
    """A bare request gives a response with all keys that the specification requires."""
    assert begun() == DEFAULTS
    assert set(DEFAULTS) >= REQUIRED


def test_what_the_client_said_is_echoed() -> None:
    """Fields that Treadle only carries come back as they were sent, with their missing halves filled."""
    fields: dict[str, Any] = {
        "instructions": "be brief",
        "max_output_tokens": 9,
        "max_tool_calls": 2,
        "parallel_tool_calls": False,
        "previous_response_id": "resp_0",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "service_tier": "flex",
        "store": False,
        "temperature": 0.0,
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
        "top_logprobs": 2,
        "top_p": 0.5,
        "truncation": "auto",
        "user": "u",
        "metadata": {"a": "b"},
        "frequency_penalty": 0.5,
        "presence_penalty": 0.25,
    }
    echoed = begun(**fields, text={"verbosity": "low"}, reasoning={"effort": "high"})
    assert echoed == {
        **DEFAULTS,
        **fields,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": "high", "summary": None},
    }


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_conversation_is_an_object_however_it_was_sent(conversation: Any) -> None:
    """The response names the conversation in its object form."""
    assert begun(conversation=conversation)["conversation"] == {"id": "conv_1"}


def test_tools_are_echoed_with_the_keys_that_typed_clients_expect() -> None:
    """Flat functions gain null for what was left out; every other tool is echoed as it was sent."""
    nested = {"type": "function", "function": {"name": "g"}}
    hosted = {"type": "web_search"}
    echoed = begun(tools=[{"type": "function", "name": "f", "strict": True}, nested, hosted])["tools"]
    full = {"type": "function", "name": "f", "description": None, "parameters": None, "strict": True}
    assert echoed == [full, nested, hosted]


def test_extra_fields_of_another_protocol_are_not_echoed() -> None:
    """A request that came by another protocol has no word of it in its response."""
    options = Options(extra={"user": msgspec.Raw(b'"u"'), "text": msgspec.Raw(b"3")}, extra_protocol="chat")
    assert _of(Request(protocol="chat", model="m", options=options)) == DEFAULTS


def test_completed_response_has_its_time() -> None:
    """Only a completed response has a time of completion."""
    request = Request(protocol="responses", model="m")
    assert _of(request, RunEnded(status="completed", ended_at=1007.8))["completed_at"] == 1007
    assert _of(request, RunEnded(status="failed", ended_at=1007.8))["completed_at"] is None
    assert _of(request, RunEnded(status="completed"))["completed_at"] is None


def test_asking_before_the_run_started_is_a_mistake() -> None:
    """There is no response before the run has begun."""
    with pytest.raises(AssertionError):
        Encoder(Request(protocol="responses", model="m"), CountingIds()).body()
