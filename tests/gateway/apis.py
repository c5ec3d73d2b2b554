"""The same question asked of each API over plain HTTP, and what of an answer is text."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec

from gateway.gateway import Gateway
from treadle.protocols.sse import SseFrame, SseReader

QUESTION = "What is the weather in Paris?"
BOUND_S = 30.0


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """How one API is asked for an answer, whole or streamed."""

    path: str
    stream_path: str
    body: dict[str, Any]
    stream_field: bool = True

    def url(self, gateway: Gateway, *, stream: bool) -> str:
        return gateway.origin + (self.stream_path if stream else self.path)

    def content(self, *, stream: bool, **more: Any) -> dict[str, Any]:
        return {**self.body, **({"stream": stream} if self.stream_field else {}), **more}


_MESSAGES = [{"role": "user", "content": QUESTION}]
APIS: dict[str, Api] = {
    "chat": Api(
        path="/v1/chat/completions",
        stream_path="/v1/chat/completions",
        body={"model": "script", "messages": _MESSAGES},
    ),
    "responses": Api(path="/v1/responses", stream_path="/v1/responses", body={"model": "script", "input": QUESTION}),
    "messages": Api(
        path="/v1/messages",
        stream_path="/v1/messages",
        body={"model": "script", "max_tokens": 100, "messages": _MESSAGES},
    ),
    "gemini": Api(
        path="/v1beta/models/script:generateContent",
        stream_path="/v1beta/models/script:streamGenerateContent?alt=sse",
        body={"contents": [{"role": "user", "parts": [{"text": QUESTION}]}]},
        stream_field=False,
    ),
}


def post(gateway: Gateway, api: str, *, stream: bool = False, headers: dict[str, str] | None = None) -> httpx2.Response:
    """Ask and return the whole answer."""
    asked = APIS[api]
    return httpx2.post(
        asked.url(gateway, stream=stream), json=asked.content(stream=stream), headers=headers, timeout=BOUND_S
    )


def frames(body: bytes) -> list[bytes]:
    """Cut a stream into its frames, as they were sent."""
    return [frame + b"\n\n" for frame in body.split(b"\n\n") if frame]


def read_frames(body: bytes) -> list[SseFrame]:
    """Read the frames of a stream."""
    reader = SseReader()
    return [*reader.feed(body), *reader.finish()]


def _chat(data: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in data.get("choices", ()))


def _responses(data: dict[str, Any]) -> str:
    return data["delta"] if data["type"] == "response.output_text.delta" else ""


def _messages(data: dict[str, Any]) -> str:
    return data["delta"].get("text", "") if data["type"] == "content_block_delta" else ""


def _gemini(data: dict[str, Any]) -> str:
    parts = [part for candidate in data.get("candidates", ()) for part in candidate["content"]["parts"]]
    return "".join(part.get("text", "") for part in parts)


_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}


def text_of(api: str, body: bytes) -> str:
    """Return the text of a stream."""
    return "".join(_TEXTS[api](json.loads(frame.data)) for frame in read_frames(body) if frame.data != "[DONE]")
