"""What an upstream ran by itself, as clients of other protocols are shown it: in their own terms, or not and noted."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response

from stream.answers import as_run
from treadle.core.events import ItemDone, ModelEvent, Noted
from treadle.core.ids import CountingIds
from treadle.core.items import OpaqueItem, text_message
from treadle.core.plan import Plan
from treadle.core.request import Options, Request, Surface
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName
from treadle.protocols.translation.hosted_call_translation import is_retold
from treadle.providers.provider_model import open_call

SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "sky"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [{"type": "web_search_result", "url": "https://a.example/", "title": "A", "encrypted_content": "x"}],
}
BLOCKED = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
}
RUN = {"type": "server_tool_use", "id": "srv_2", "name": "code_execution", "input": {"code": "print(4)"}}
RAN = {
    "type": "code_execution_tool_result",
    "tool_use_id": "srv_2",
    "content": {"type": "code_execution_result", "stdout": "4\n", "stderr": "", "return_code": 0, "content": []},
}
LOOK = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": "theirs", "input": {"p": 1}}
SEEN = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "a page"}],
}
TEXT = {"type": "text", "text": "Blue."}
MCP_CALL = {
    "type": "mcp_call",
    "id": "mcp_1",
    "server_label": "docs",
    "name": "read",
    "arguments": '{"p":1}',
    "output": "a page",
}
IMAGE = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"}


def answered(client: str, upstream: ProtocolName, body: dict[str, Any]) -> list[ModelEvent]:
    """Return the events of a whole answer for a client of that protocol."""
    plan = Plan(items=(text_message("user", "go"),), model="m", options=Options(extra_protocol=client))
    decoder = open_call(upstream, plan, CountingIds(), "p").decoder
    return decoder.feed(json.dumps(body).encode()) + decoder.finish()


def message(*blocks: Any) -> dict[str, Any]:
    """Return a whole message of the Messages API."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn", "usage": usage}


def response(*items: Any) -> dict[str, Any]:
    """Return a whole response of the Responses API."""
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": items}


def codes(events: list[ModelEvent]) -> list[str]:
    """Return the codes of what was dropped."""
    return [event.note.code for event in events if isinstance(event, Noted) and event.note.action == "dropped"]


def written(client: str, events: list[ModelEvent], *, streams: bool = False) -> Any:
    """Return what the client gets: the whole body, or the data of the frames."""
    request = Request(protocol=client, model="m", surface=Surface(stream=streams))  # type: ignore[arg-type]
    encoder = PROTOCOLS[client].codec.encoder(request, CountingIds())
    frames = [frame for event in as_run(events) for frame in encoder.feed(event)]
    if not streams:
        return json.loads(encoder.body())
    lines = b"".join(frames).splitlines()
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]


@pytest.mark.parametrize(
    ("blocks", "item"),
    [
        (
            [SEARCH, FOUND],
            {
                "type": "web_search_call",
                "id": "ws_srv_1",
                "status": "completed",
                "action": {
                    "type": "search",
                    "query": "sky",
                    "sources": [{"type": "url", "url": "https://a.example/"}],
                },
            },
        ),
        (
            [SEARCH, BLOCKED],
            {
                "type": "web_search_call",
                "id": "ws_srv_1",
                "status": "failed",
                "action": {"type": "search", "query": "sky", "sources": []},
            },
        ),
        (
            [RUN, RAN],
            {
                "type": "code_interpreter_call",
                "id": "ci_srv_2",
                "status": "completed",
                "code": "print(4)",
                "container_id": "",
                "outputs": [{"type": "logs", "logs": "4\n"}],
            },
        ),
        (
            [LOOK, SEEN],
            {
                "type": "mcp_call",
                "id": "mcp_mcptoolu_1",
                "status": "completed",
                "server_label": "theirs",
                "name": "look",
                "arguments": '{"p":1}',
                "output": "a page",
                "error": None,
                "approval_request_id": None,
            },
        ),
        (
            [LOOK, {**SEEN, "is_error": True}],
            {
                "type": "mcp_call",
                "id": "mcp_mcptoolu_1",
                "status": "failed",
                "server_label": "theirs",
                "name": "look",
                "arguments": '{"p":1}',
                "output": None,
                "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "a page"}]},
                "approval_request_id": None,
            },
        ),
    ],
    ids=["search", "search-failed", "code", "mcp", "mcp-failed"],
)
def test_a_responses_client_is_shown_the_item_of_the_same_meaning(blocks: list[Any], item: dict[str, Any]) -> None:
    """The call and its result are one item, before the text that follows; the journal keeps the blocks, and no note."""
    events = answered("responses", "messages", message(*blocks, TEXT))
    assert codes(events) == []
    kept = [event.item for event in events if isinstance(event, ItemDone) and isinstance(event.item, OpaqueItem)]
    assert [json.loads(bytes(one.raw)) for one in kept] == blocks
    body = written("responses", events)
    assert body["output"][0] == item
    assert body["output"][1]["content"][0]["text"] == "Blue."
    assert Response.model_validate(body).output[0].type == item["type"]
    frames = written("responses", events, streams=True)
    done = [frame for frame in frames if frame["type"] == "response.output_item.done"]
    assert [frame["output_index"] for frame in done] == [0, 1]
    assert done[0]["item"] == item


@pytest.mark.parametrize("call", [SEARCH, RUN, LOOK], ids=["search", "code", "mcp"])
def test_a_call_whose_result_never_came_is_incomplete(call: dict[str, Any]) -> None:
    """The provider paused the turn, or its answer ended there."""
    events = answered("responses", "messages", message(call))
    (item,) = written("responses", events)["output"]
    assert item["status"] == "incomplete"


@pytest.mark.parametrize("result", [FOUND, RAN, SEEN], ids=["search", "code", "mcp"])
def test_a_result_whose_call_came_in_an_earlier_answer_is_shown_too(result: dict[str, Any]) -> None:
    """Its item has no arguments then, and what the call gave."""
    events = answered("responses", "messages", message(result, TEXT))
    assert codes(events) == []
    item, _ = written("responses", events)["output"]
    assert (item["status"], result["tool_use_id"] in item["id"]) == ("completed", True)


@pytest.mark.parametrize(
    ("ending", "text", "is_error"),
    [
        ({"output": "a page"}, "a page", False),
        ({"output": None, "error": {"type": "http_error", "code": 500, "message": "down"}}, "down", True),
        ({"output": None, "status": "incomplete"}, "", True),
    ],
)
def test_a_messages_client_is_shown_an_mcp_call_as_its_blocks(ending: Any, text: str, is_error: bool) -> None:
    """A use and a result, both whole."""
    events = answered("messages", "responses", response({**MCP_CALL, **ending}))
    assert codes(events) == []
    use, result = written("messages", events)["content"]
    assert use == {
        "type": "mcp_tool_use",
        "id": "mcptoolu_mcp_1",
        "name": "read",
        "input": {"p": 1},
        "server_name": "docs",
    }
    assert result == {
        "type": "mcp_tool_result",
        "tool_use_id": "mcptoolu_mcp_1",
        "is_error": is_error,
        "content": [{"type": "text", "text": text}],
    }
    starts = [frame for frame in written("messages", events, streams=True) if frame["type"] == "content_block_start"]
    assert [(frame["index"], frame["content_block"]) for frame in starts] == [(0, use), (1, result)]


@pytest.mark.parametrize(
    ("client", "shown"),
    [
        ("chat", "data:image/png;base64,AAAA"),
        ("gemini", {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
        ("messages", "[image of type image/png]"),
    ],
)
def test_a_generated_image_is_shown_without_a_note_of_loss(client: str, shown: Any) -> None:
    """As an image where the protocol has a place for one, by its type where it has none."""
    events = answered(client, "responses", response(IMAGE))
    assert codes(events) == []
    assert json.dumps(shown) in json.dumps(written(client, events))
    assert json.dumps(shown) in json.dumps(written(client, events, streams=True))


@pytest.mark.parametrize(
    ("client", "upstream", "item"),
    [
        ("chat", "messages", SEARCH),
        ("gemini", "messages", LOOK),
        ("chat", "responses", MCP_CALL),
        ("messages", "responses", {"type": "file_search_call", "id": "fs_1"}),
        ("responses", "messages", {"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {}}),
    ],
)
def test_what_has_no_counterpart_is_noted(client: str, upstream: ProtocolName, item: dict[str, Any]) -> None:
    """By what it was."""
    body = message(item, TEXT) if upstream == "messages" else response(item)
    assert codes(answered(client, upstream, body)) == ["hosted_block"]


@pytest.mark.parametrize("raw", [b"1", b'{"type":3}', b'{"type":"image_generation_call","result":null}', b"{}"])
@pytest.mark.parametrize("client", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_an_odd_item_is_not_told_anew(raw: bytes, client: str, protocol: str) -> None:
    """Whatever it is, it is asked for without a fault."""
    assert not is_retold(OpaqueItem(protocol=protocol, raw=msgspec.Raw(raw)), client)


@pytest.mark.parametrize("kind", [{}, [], 7, None])
def test_a_block_whose_type_is_no_text_is_shown_to_nobody_else(kind: Any) -> None:
    """Whatever an upstream calls a block."""
    item = OpaqueItem(id="x", protocol="messages", raw=msgspec.Raw(json.dumps({"type": kind}).encode()))
    assert not is_retold(item, "responses")
