"""Judges a Messages stream with the real anthropic SDK: its SSE reader, its types and both of its accumulators."""

import json
from collections.abc import Iterable
from typing import Any

import anthropic
import httpx2
import msgspec
from anthropic.types import Message
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

from treadle.core.events import RunEnded, RunEvent, RunStarted
from treadle.core.ids import CountingIds
from treadle.core.request import Request, Surface
from treadle.protocols.messages import Encoder
from treadle.protocols.sse import SseFrame, SseReader

STARTED = RunStarted(run_id="run_1", response_id="msg_1", model="m", created_at=1000.5)
COMPLETED = RunEnded(status="completed", ended_at=1009.0)
_official: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)

_CUT = ("max_tokens", "refusal")


class Verdict(msgspec.Struct, kw_only=True):
    """What a client saw: the data of every event, the text as it streamed, and the message it ended with."""

    events: list[dict[str, Any]]
    final: dict[str, Any]
    raw: bytes
    text: str = ""

    @property
    def types(self) -> list[str]:
        """Return the types of all events."""
        return [event["type"] for event in self.events]

    @property
    def content(self) -> list[dict[str, Any]]:
        """Return the blocks of the message."""
        return self.final["content"]

    def deltas(self, kind: str) -> list[dict[str, Any]]:
        """Return the deltas of one type."""
        found = [event["delta"] for event in self.events if event["type"] == "content_block_delta"]
        return [delta for delta in found if delta["type"] == kind]


def request(**fields: Any) -> Request:
    """Return a small streaming request with these fields."""
    return Request(protocol="messages", model="m", **{"surface": Surface(stream=True), **fields})


def encode(events: Iterable[RunEvent], of: Request | None = None) -> tuple[bytes, Encoder]:
    """Return the bytes of a run, and its encoder."""
    encoder = Encoder(of or request(), CountingIds(namespace="new"))
    return b"".join(frame for event in events for frame in encoder.feed(event)), encoder


def judge(events: Iterable[RunEvent], of: Request | None = None) -> Verdict:
    """Encode a run that ends well and let the SDK read it; the whole message must say the same, streamed or not."""
    asked = of or request()
    run = [STARTED, *events]
    raw, encoder = encode(run, asked)
    verdict = Verdict(events=_checked(SseReader().feed(raw)), final=json.loads(encoder.body()), raw=raw)
    _check_lifecycle(verdict)
    _check_sdk(verdict)
    quiet = msgspec.structs.replace(asked, surface=msgspec.structs.replace(asked.surface, stream=False))
    told, folded = encode(run, quiet)
    assert told == b""
    assert folded.body() == encoder.body()
    return verdict


def client(raw: bytes, status: int = 200, kind: str = "text/event-stream") -> anthropic.Anthropic:
    """Return an SDK client whose every request is answered with these bytes."""
    headers = {"content-type": kind}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, headers=headers, content=raw))
    http = httpx2.Client(transport=transport)
    return anthropic.Anthropic(api_key="k", base_url="http://sdk.invalid", http_client=http, max_retries=0)


def _checked(frames: list[SseFrame]) -> list[dict[str, Any]]:
    """Return the data of the frames, each valid for the SDK's types and named as its type."""
    events = [json.loads(frame.data) for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in events]
    for event in events:
        if event["type"] != "ping":
            _official.validate_python(event)
    return events


def _check_lifecycle(verdict: Verdict) -> None:
    """Check what holds for every stream: one start, one end, dense indexes, one open block at a time."""
    kinds = [kind for kind in verdict.types if kind != "ping"]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert all(kind.startswith("content_block_") for kind in kinds[1:-2])
    expected = -1
    is_open = False
    for event in verdict.events:
        if event["type"] == "content_block_start":
            assert not is_open
            is_open, expected = True, expected + 1
        if event["type"].startswith("content_block_"):
            assert is_open
            assert event["index"] == expected
        if event["type"] == "content_block_stop":
            is_open = False
    # What was cut is never ended: a client would run it.
    assert not is_open or verdict.final["stop_reason"] in _CUT
    BetaMessage.model_validate(verdict.final)


def _check_sdk(verdict: Verdict) -> None:
    """Let `client.messages.stream()` and its beta twin read the bytes and compare what they accumulated."""
    asked: dict[str, Any] = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    with client(verdict.raw) as sdk:
        with sdk.messages.stream(**asked) as plain:
            verdict.text = "".join(plain.text_stream)
            _compare(plain.get_final_message(), verdict)
        with sdk.beta.messages.stream(**asked) as beta:
            _compare(beta.get_final_message(), verdict)
    said = [block["text"] for block in verdict.content if block["type"] == "text"]
    assert verdict.text == "".join(said)


def _compare(seen: Message | BetaMessage, verdict: Verdict) -> None:
    # The plain types know no MCP blocks; they keep them, and warn when they are written.
    final = seen.to_dict(mode="json", warnings=False)
    expected = verdict.final
    for field in ("id", "type", "role", "model", "stop_reason", "stop_sequence"):
        assert final.get(field) == expected[field]
    assert final["usage"] == expected["usage"]
    blocks: Any = final["content"]
    if expected["stop_reason"] in _CUT:
        # The accumulators keep the beginning of a call that never ended.
        blocks = blocks[: len(expected["content"])]
    assert len(blocks) == len(expected["content"])
    for block, whole in zip(blocks, expected["content"], strict=True):
        if whole["type"] == "tool_use" and "INVALID_JSON" in whole["input"]:
            # A stream cannot take back what it has sent: there such arguments stay unfinished.
            block = {**block, "input": whole["input"]}
        if whole["type"] == "mcp_tool_use" and block["input"] == {}:
            # Only the beta accumulator collects the input of these; the plain one keeps what the block began with.
            block = {**block, "input": whole["input"]}
        assert _told(block) == _told(whole)


def _told(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without what the SDK adds."""
    return {key: value for key, value in block.items() if key != "parsed_output" and value is not None}
