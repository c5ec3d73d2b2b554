"""Calls that a server ran: whose they are, and what upstreams of other protocols are told of them."""

import json
from typing import Any

import msgspec
import pytest

from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, CallItem, ImagePart, MessageItem, OpaqueItem, ResultItem, TextPart
from treadle.core.json import read_json
from treadle.core.plan import Plan
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName
from treadle.protocols.responses import read_request
from treadle.protocols.responses.hosted_calls import spell_out
from treadle.protocols.translation_notes import Notes
from treadle.providers.provider_model import open_call

CALL = {"type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "read.page", "arguments": '{"p":1}'}
MCP = {"type": "mcp", "server_label": "docs", "server_url": "https://example.com/mcp"}
HI = {"type": "message", "role": "user", "content": "hi"}


def raw(value: Any) -> msgspec.Raw:
    """Return a value as JSON."""
    return msgspec.Raw(json.dumps(value).encode())


def items_of(*items: Any, **fields: Any) -> tuple[AnyItem, ...]:
    """Return the items of a request with this input."""
    return read_request(json.dumps({"model": "m", "input": list(items), **fields}).encode()).items


def opaque(value: Any) -> OpaqueItem:
    """Return an item that only the Responses API can read."""
    return OpaqueItem(id=value.get("id", ""), protocol="responses", raw=raw(value))


@pytest.mark.parametrize(
    ("label", "tools", "is_own"),
    [
        ("docs", [MCP], False),
        ("docs", [], False),
        ("treadle", [], True),
        ("python", [], True),
        ("local", [MCP], True),
        ("mcp:files", [], True),
        (None, [], True),
        ("python", [{**MCP, "server_label": "python"}], False),
    ],
)
def test_a_replayed_call_belongs_to_whoever_ran_it(label: str | None, tools: list[Any], is_own: bool) -> None:
    """Treadle's own is a pair of items; one of the upstream's stays as it is, even if its label sounds like ours."""
    item = {**CALL, "server_label": label, "output": "ok"}
    kinds = [type(each) for each in items_of(item, tools=tools)]
    assert kinds == ([CallItem, ResultItem] if is_own else [OpaqueItem])


@pytest.mark.parametrize(
    "item",
    [
        {**CALL, "output": "ok", "approval_request_id": "mcpr_1", "brand_new": [1]},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "docs", "tools": []},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "docs", "name": "n", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ],
)
def test_what_an_upstreams_server_did_goes_back_to_it_whole(item: dict[str, Any]) -> None:
    """Not a field is lost on the way to an upstream of the same protocol, and nothing is noted."""
    items = items_of(HI, item, tools=[MCP])
    written = PROTOCOLS["responses"].codec.write_request(Plan(items=items, model="m"))
    assert read_json(written.body)["input"] == [HI, item]
    assert written.notes == ()


@pytest.mark.parametrize(
    ("ending", "output", "is_error"),
    [
        ({"output": "ok"}, (TextPart(text="ok"),), False),
        ({"error": {"type": "http_error", "code": 500, "message": "down"}}, (TextPart(text="down"),), True),
        ({"status": "in_progress"}, (), True),
    ],
)
def test_other_upstreams_are_told_a_call_and_its_result(ending: Any, output: Any, is_error: bool) -> None:
    """Under a name that every provider takes and that says whose tool it was."""
    notes = Notes()
    call, result = spell_out((opaque({**CALL, **ending}),), notes)
    assert isinstance(call, CallItem)
    assert isinstance(result, ResultItem)
    assert (call.name, call.call_id, call.arguments) == ("docs__read_page", "mcp_1", '{"p":1}')
    assert (result.call_id, result.output, result.is_error) == ("mcp_1", output, is_error)
    assert [(note.code, note.action) for note in notes.all()] == [("mcp_call_told", "emulated")]


@pytest.mark.parametrize(
    ("upstream", "turns"),
    [
        (
            "chat",
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "mcp_1",
                            "type": "function",
                            "function": {"name": "docs__read_page", "arguments": '{"p":1}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "mcp_1", "content": "ok"},
            ],
        ),
        (
            "messages",
            [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "mcp_1", "name": "docs__read_page", "input": {"p": 1}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "mcp_1", "content": "ok"}]},
            ],
        ),
        (
            "gemini",
            [
                {
                    "role": "model",
                    "parts": [{"functionCall": {"id": "mcp_1", "name": "docs__read_page", "args": {"p": 1}}}],
                },
                {
                    "role": "user",
                    "parts": [
                        {"functionResponse": {"id": "mcp_1", "name": "docs__read_page", "response": {"output": "ok"}}}
                    ],
                },
            ],
        ),
    ],
)
def test_upstreams_of_other_protocols_read_the_pair(upstream: ProtocolName, turns: list[Any]) -> None:
    """As one turn of the model, answered; nothing is lost."""
    items = items_of(HI, {**CALL, "output": "ok"}, {"role": "assistant", "content": "done"})
    call = open_call(upstream, Plan(items=items, model="gemini-2.0"), CountingIds(), "p")
    body = read_json(call.body)
    assert (body.get("messages") or body["contents"])[1:3] == turns
    assert ("mcp_call_told", "emulated") in [(note.code, note.action) for note in call.notes]
    assert not [note for note in call.notes if note.action == "dropped"]


def test_a_generated_image_goes_back_to_a_messages_upstream_as_a_users() -> None:
    """Its assistants cannot show images, so it follows behind the answer that it belongs to."""
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"}
    items = items_of(HI, item, {"role": "user", "content": "bigger"})
    call = open_call("messages", Plan(items=items, model="m"), CountingIds(), "p")
    _, answer, user = read_json(call.body)["messages"]
    assert answer["role"] == "assistant"
    assert "attachment" in answer["content"]
    assert [block["type"] for block in user["content"]] == ["text", "image", "text"]
    assert user["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert not [note for note in call.notes if note.action == "dropped"]


def test_a_generated_image_is_an_image_of_the_answer() -> None:
    """In the format that it says it has."""
    notes = Notes()
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"}
    images = spell_out((opaque(item), opaque({**item, "output_format": "webp"})), notes)
    urls = ["data:image/png;base64,AAAA", "data:image/webp;base64,AAAA"]
    assert list(images) == [MessageItem(role="assistant", content=(ImagePart(url=url),)) for url in urls]
    assert [(note.code, note.count) for note in notes.all()] == [("image_told", 2)]


@pytest.mark.parametrize(
    "item",
    [
        opaque({"type": "mcp_call", "id": 3, "name": "n"}),
        opaque({"type": "mcp_list_tools", "tools": []}),
        opaque({"type": "image_generation_call", "result": None}),
        opaque({"type": "image_generation_call", "result": {"odd": 1}}),
        OpaqueItem(protocol="messages", raw=raw({**CALL})),
        CallItem(call_id="c", name="n"),
    ],
)
def test_what_cannot_be_told_stays_as_it_is(item: AnyItem) -> None:
    """Its writer drops and notes it, as anything that only one protocol can carry."""
    notes = Notes()
    assert spell_out((item,), notes) == (item,)
    assert notes.all() == ()
