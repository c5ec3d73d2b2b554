"""Answers for clients of another protocol: what they cannot be shown is readable, or noted; nothing is silent."""

import json
from typing import Any

import msgspec
import pytest

from stream.answers import as_run
from treadle.core.events import ItemDone, ModelEvent, Noted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import (
    Extra,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    TextPart,
    text_message,
    text_of,
)
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Note, Options, Request, Surface
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName
from treadle.protocols.translation.foreign_answer_fields import Bearer, readable
from treadle.providers.provider_model import open_call

FOREIGN = pytest.mark.parametrize("client", ["chat", "gemini"])
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]}
REMOTE = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": "theirs", "input": {}}
RAN = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_2", "content": {"stdout": "4"}}
CITED = {"type": "web_search_result_location", "url": "https://a.example/x", "title": "A", "cited_text": "sky"}
PAGED = {"type": "page_location", "document_index": 0, "document_title": "D", "cited_text": "x"}


def answered(client: str, upstream: ProtocolName, body: bytes, chunk: int = 4096) -> list[ModelEvent]:
    """Return the events of an upstream's answer for a client of that protocol."""
    options = Options(extra_protocol=client)
    plan = Plan(items=(text_message("user", "go"),), model="m", options=options)
    decoder = open_call(upstream, plan, CountingIds(), "p").decoder
    events = [event for at in range(0, len(body), chunk) for event in decoder.feed(body[at : at + chunk])]
    return events + decoder.finish()


def notes_of(events: list[ModelEvent]) -> list[Note]:
    """Return the notes."""
    return [event.note for event in events if isinstance(event, Noted)]


def shown(client: str, events: list[ModelEvent], *, streams: bool) -> bytes:
    """Return what the client gets."""
    request = Request(protocol=client, model="m", surface=Surface(stream=streams))  # type: ignore[arg-type]
    encoder = PROTOCOLS[client].codec.encoder(request, CountingIds())
    frames = [frame for event in as_run(events) for frame in encoder.feed(event)]
    return b"".join(frames) if streams else encoder.body()


def message(*blocks: Any) -> bytes:
    """Return a whole message of the Messages API."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    body = {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn", "usage": usage}
    return json.dumps(body).encode()


def candidate(*parts: Any, **fields: Any) -> bytes:
    """Return a whole response of Gemini."""
    one = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", **fields}
    return json.dumps({"candidates": [one], "usageMetadata": {"promptTokenCount": 1}}).encode()


@FOREIGN
@pytest.mark.parametrize("block", [SEARCH, FOUND, REMOTE, RAN], ids=lambda block: block["type"])
def test_a_hosted_block_is_kept_and_named(client: str, block: dict[str, Any]) -> None:
    """The journal has it for the upstream that made it; the client is told what it is not shown."""
    events = answered(client, "messages", message(block, {"type": "text", "text": "Blue."}))
    (note,) = notes_of(events)
    assert (note.code, note.action, note.field) == ("hosted_block", "dropped", block["type"])
    kept = [event.item for event in events if isinstance(event, ItemDone) and isinstance(event.item, OpaqueItem)]
    assert [read_json(bytes(item.raw)) for item in kept] == [block]
    for streams in (True, False):
        assert b"Blue." in shown(client, events, streams=streams)


def test_a_client_of_the_same_protocol_gets_the_block_itself() -> None:
    """Without a word about it."""
    events = answered("messages", "messages", message(SEARCH, FOUND))
    assert notes_of(events) == []
    assert [block["type"] for block in json.loads(shown("messages", events, streams=False))["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
    ]


def test_one_kind_of_block_is_noted_once() -> None:
    """Ten searches are one note."""
    events = answered("chat", "messages", message(*[SEARCH] * 10, {"type": "text", "text": "x"}))
    assert [note.code for note in notes_of(events)] == ["hosted_block"]


@pytest.mark.parametrize("client", ["chat", "responses"])
def test_what_is_cited_by_address_becomes_annotations(client: str) -> None:
    """Of the text that cites it; a page of a document has no address, and that is said."""
    body = message({"type": "text", "text": "Look: "}, {"type": "text", "text": "sky", "citations": [CITED, PAGED]})
    events = answered(client, "messages", body)
    (item,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(item, MessageItem)
    part = item.content[1]
    assert isinstance(part, TextPart)
    assert part.annotations is not None
    assert read_json(bytes(part.annotations)) == [
        {"type": "url_citation", "url": CITED["url"], "title": "A", "start_index": 0, "end_index": 3}
    ]
    assert {note.code for note in notes_of(events)} == {"citations_annotated", "citations_dropped"}
    assert b"https://a.example/x" in shown(client, events, streams=False)


def test_citations_for_a_client_without_annotations_are_noted() -> None:
    """Gemini's clients have no place for them; Anthropic's own keep them as they are."""
    body = message({"type": "text", "text": "sky", "citations": [CITED]})
    assert [note.code for note in notes_of(answered("gemini", "messages", body))] == ["citations_dropped"]
    own = answered("messages", "messages", body)
    assert notes_of(own) == []
    assert json.loads(shown("messages", own, streams=False))["content"][0]["citations"] == [CITED]


@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_code_that_gemini_ran_is_text_in_its_place(client: str, chunk: int) -> None:
    """Between the texts around it, streamed and whole."""
    code = {"executableCode": {"language": "PYTHON", "code": "print(2+2)"}}
    ran = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4\n"}}
    frames = [candidate({"text": "Let me see."}), candidate(code), candidate(ran), candidate({"text": "Four."})]
    body = b"".join(b"data: " + frame + b"\n\n" for frame in frames)
    events = answered(client, "gemini", body, chunk)
    wanted = "Let me see.\n```python\nprint(2+2)\n```\n\n```\n4\n```\nFour."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == wanted
    (item,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(item, MessageItem)
    assert text_of(item.content) == wanted
    assert [note.code for note in notes_of(events)] == ["code_as_text"]
    for streams in (True, False):
        sent = shown(client, events, streams=streams)
        places = [sent.find(word) for word in (b"Let me see.", b"print(2+2)", b"Four.")]
        assert -1 not in places
        assert places == sorted(places)


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_of_gemini_gets_parts_in_their_order(streams: bool) -> None:
    """As parts, each once, and told at once."""
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    events = answered("gemini", "gemini", candidate({"text": "a"}, code, {"text": "b"}, image, {"text": "c"}))
    sent = shown("gemini", events, streams=streams)
    frames = [json.loads(line[6:]) for line in sent.decode().split("\n\n") if line] if streams else [json.loads(sent)]
    parts = [part for frame in frames for part in frame["candidates"][0]["content"]["parts"] if part != {"text": ""}]
    assert parts == [{"text": "a"}, code, {"text": "b"}, image, {"text": "c"}]
    assert notes_of(events) == []


GROUNDING = {
    "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}, {"web": {"uri": "https://b.example"}}],
    "groundingSupports": [
        {"segment": {"startIndex": 0, "endIndex": 5, "text": "blåå"}, "groundingChunkIndices": [0, 1, 9, "x"]},
        {"segment": {"endIndex": 4}, "groundingChunkIndices": [1]},
    ],
    "webSearchQueries": ["q"],
}


@pytest.mark.parametrize("client", ["chat", "responses"])
def test_grounding_becomes_annotations(client: str) -> None:
    """At the characters that it is about, though Gemini counts bytes."""
    events = answered(client, "gemini", candidate({"text": "Ååå blåå"}, groundingMetadata=GROUNDING))
    (item,) = [event.item for event in events if isinstance(event, ItemDone)]
    assert isinstance(item, MessageItem)
    (part,) = item.content
    assert isinstance(part, TextPart)
    assert part.annotations is not None
    spans = [(each["url"], each["start_index"], each["end_index"]) for each in read_json(bytes(part.annotations))]
    assert spans == [("https://a.example", 4, 8), ("https://b.example", 4, 8), ("https://b.example", 0, 2)]
    assert [note.code for note in notes_of(events)] == ["citations_annotated"]
    assert b"https://a.example" in shown(client, events, streams=False)


def test_what_gemini_says_about_an_answer_reaches_its_own_clients() -> None:
    """On the candidate, streamed and whole; for others what has no place is noted."""
    about = {"groundingMetadata": GROUNDING, "urlContextMetadata": {"a": 1}, "avgLogprobs": -0.5}
    body = candidate({"text": "x"}, **about)
    events = answered("gemini", "gemini", body)
    assert notes_of(events) == []
    whole = json.loads(shown("gemini", events, streams=False))["candidates"][0]
    assert {name: whole[name] for name in about} == about
    last = shown("gemini", events, streams=True).decode().strip().split("\n\n")[-1]
    assert json.loads(last[6:])["candidates"][0]["groundingMetadata"] == GROUNDING
    noted = [(note.code, note.field) for note in notes_of(answered("messages", "gemini", body))]
    assert noted == [("field_dropped", "urlContextMetadata"), ("citations_dropped", "citations")]


def test_an_unknown_part_is_noted() -> None:
    """It is kept in the item all the same."""
    events = answered("chat", "gemini", candidate({"toolCall": {"id": "t"}}, {"text": "x"}))
    assert [note.code for note in notes_of(events)] == ["part_hidden"]


def test_media_are_named_to_a_client_of_messages() -> None:
    """By their address or their type, behind the text; never silently left out."""
    parts = (
        ImagePart(url="https://a.example/i.png"),
        TextPart(text="there"),
        ImagePart(url="data:image/png;base64,AAAA"),
        FilePart(url="data:,x"),
    )
    event = ItemDone(index=0, item=MessageItem(id="msg_1", role="assistant", content=parts))
    events = Bearer("messages").feed(event)
    assert [note.code for note in notes_of(events)] == ["media_named"]
    assert Bearer("chat").feed(event) == [event]
    body = answered("messages", "gemini", candidate({"text": "A"}, {"inlineData": {"mimeType": "image/png"}}))
    content = json.loads(shown("messages", body, streams=False))["content"]
    assert [block["text"] for block in content] == ["A", "[image of type image/png]"]


def test_annotations_of_others_are_noted_where_they_have_no_place() -> None:
    """A client of Messages or Gemini is told."""
    part = TextPart(text="x", annotations=msgspec.Raw(b'[{"type":"url_citation"}]'))
    event = ItemDone(index=0, item=MessageItem(role="assistant", content=(part,)))
    for client in ("messages", "gemini"):
        assert [note.code for note in notes_of(Bearer(client).feed(event))] == ["annotations_dropped"]
    assert Bearer("chat").feed(event) == [event]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"executableCode": {"code": "a```b"}}, "\n````\na```b\n````\n"),
        ({"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}}, "\n```\n[FAILED]\nno\n```\n"),
        ({"executableCode": {"code": 5, "language": 6}}, "\n```\n\n```\n"),
        ({"executableCode": 5}, None),
        ({}, None),
        (5, None),
    ],
)
def test_only_code_and_its_outcome_are_readable(part: Any, text: str | None) -> None:
    """Whatever is inside them."""
    assert readable(msgspec.Raw(write_json(part))) == text


@pytest.mark.parametrize("citations", [b"5", b"[5]", b'[{"url":5}]', b'[{"url":"javascript:x"}]', b"["])
def test_odd_citations_do_no_harm(citations: bytes) -> None:
    """What is no citation by address is no annotation."""
    part = TextPart(text="x", extra=Extra(protocol="messages", fields={"citations": msgspec.Raw(citations)}))
    opaque = OpaquePart(protocol="gemini", raw=msgspec.Raw(citations))
    events = Bearer("chat").feed(ItemDone(index=0, item=MessageItem(role="assistant", content=(part, opaque))))
    last = events[-1]
    assert isinstance(last, ItemDone)
    assert isinstance(last.item, MessageItem)
    assert last.item.content == (part, opaque)


@pytest.mark.parametrize("client", ["chat", "responses", "messages", "gemini"])
def test_a_plain_text_is_carried_without_a_word(client: str) -> None:
    """Nothing was lost of it, whoever reads it."""
    event = ItemDone(index=0, item=MessageItem(role="assistant", content=(TextPart(text="x"),)))
    assert Bearer(client).feed(event) == [event]
