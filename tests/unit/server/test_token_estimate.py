"""The estimate of tokens: what costs how much, and what a stored conversation adds."""

import threading
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.core.request import Options, Request
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols import field_reader as fields
from treadle.server.app import App
from treadle.server.token_estimate import FILE_TOKENS, IMAGE_TOKENS, ITEM_TOKENS, TOOL_TOKENS, estimate, filled, of_text
from unit.server.visit import JSON_TYPE, LOCAL, Visit

RAW = msgspec.Raw(b'{"type":"new_thing"}')
RAW_TOKENS = 5


def _request(*items: AnyItem, **fields: Any) -> Request:
    return Request(protocol="chat", model="m", items=items, **fields)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("four", 1),
        ("fives", 2),
        ("x" * 400, 100),
        ("привет", 3),
        ("今日は", 3),
        ("안녕하세요", 5),
        ("สวัสดี", 6),
        ("🌤🌤", 4),
        ("Wetter: 🌤 今", 6),
        ("\ud83d", 1),
    ],
)
def test_a_text_costs_by_its_script(text: str, tokens: int) -> None:
    """Four bytes make a token, but characters of three or four bytes cost one or two each."""
    assert of_text(text) == tokens


@pytest.mark.parametrize(
    ("item", "tokens"),
    [
        (text_message("user", "x" * 40), 10),
        (MessageItem(role="assistant", content=(RefusalPart(text="x" * 8),)), 2),
        (MessageItem(role="user", content=(ImagePart(url="data:image/png;base64,AAAA"),)), IMAGE_TOKENS),
        (MessageItem(role="user", content=(FilePart(file_id="file_1"),)), FILE_TOKENS),
        (MessageItem(role="user", content=(OpaquePart(protocol="chat", raw=RAW),)), RAW_TOKENS),
        (CallItem(call_id="c", name="look", arguments='{"at":1}'), 3),
        (ResultItem(call_id="c", output=(TextPart(text="x" * 8), ImagePart(url="http://x/y.png"))), 2 + IMAGE_TOKENS),
        (ReasoningItem(summary=("abcd",), text=("efgh",), blobs=(Blob(provider="p", kind="k", data="x" * 8),)), 4),
        (OpaqueItem(protocol="responses", raw=RAW), RAW_TOKENS),
        (ReferenceItem(id="msg_1"), 0),
    ],
)
def test_every_kind_of_item_is_counted(item: AnyItem, tokens: int) -> None:
    """Each has a fixed cost, and what it carries."""
    assert estimate(_request(item)) == tokens + ITEM_TOKENS


def test_instructions_tools_and_the_output_schema_are_counted() -> None:
    """All that the model would read of the request itself."""
    tool = ToolSpec(name="look", description="x" * 8, parameters=msgspec.Raw(b"{}"), format=msgspec.Raw(b'"lark"'))
    options = Options(output_schema=msgspec.Raw(b'{"type":"x"}'))
    request = _request(instructions="x" * 12, tools=(tool,), options=options)
    assert estimate(request) == 3 + ITEM_TOKENS + TOOL_TOKENS + 1 + 2 + 1 + 2 + 3
    assert estimate(_request()) == 0


def test_what_may_be_left_out_of_a_count_is_filled_in() -> None:
    """What the client did send, and is not null, stays."""
    body = filled(b'{"model":null,"input":"hi"}', {"model": b'""', "input": b"[]"})
    assert msgspec.json.decode(body) == {"model": "", "input": "hi"}
    with pytest.raises(ProtocolError):
        filled(b"[]", {})


def _count(app: App, body: dict[str, Any]) -> Visit:
    path = "/v1/responses/input_tokens"
    return Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body))


async def test_a_count_is_labelled_as_an_estimate(app: App) -> None:
    """The number is in the API's shape, and a header says what it is worth; the model may be left out."""
    visit = await _count(app, {"input": "x" * 40}).run()
    assert (visit.status, visit.headers["x-treadle-estimate"]) == (200, "true")
    assert visit.json() == {"object": "response.input_tokens", "input_tokens": 10 + ITEM_TOKENS}


async def test_the_stored_conversation_is_counted_too(app: App) -> None:
    """A request that goes on with a response has all of it in its context."""
    body = b'{"model":"demo","input":"' + b"x" * 400 + b'"}'
    first = await Visit(app, "POST", "/v1/responses", headers=[LOCAL, JSON_TYPE], body=body).run()
    alone = (await _count(app, {"input": "more"}).run()).json()["input_tokens"]
    joined = (await _count(app, {"input": "more", "previous_response_id": first.json()["id"]}).run()).json()
    assert joined["input_tokens"] >= alone + 100


async def test_an_unknown_conversation_cannot_be_counted(app: App) -> None:
    """The field is named, as it is when the request is made."""
    visit = await _count(app, {"input": "more", "previous_response_id": "resp_none"}).run()
    assert (visit.status, visit.json()["error"]["param"]) == (404, "previous_response_id")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses/input_tokens", {"input": "x" * 1_100_000}),
        ("/v1/messages/count_tokens", {"model": "demo", "messages": [{"role": "user", "content": "x" * 1_100_000}]}),
        ("/v1beta/models/demo:countTokens", {"contents": [{"parts": [{"text": "x" * 1_100_000}]}]}),
    ],
)
async def test_a_large_count_is_parsed_off_the_loop(
    app: App, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its parsing, so that the streams of others go on."""
    where: set[int] = set()
    parsed = fields.members_of

    def parsing(body: bytes) -> Any:
        where.add(threading.get_ident())
        return parsed(body)

    monkeypatch.setattr(fields, "members_of", parsing)
    visit = await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body)).run()
    assert visit.status == 200
    assert where
    assert threading.get_ident() not in where
