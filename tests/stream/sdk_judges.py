"""The vendors' SDKs as readers of bytes that Treadle sends a client: what their accumulators make of a stream."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
from google import genai
from google.genai import types

from stream.answers import pieces
from stream.pairs import Seen, canonical

HEADERS = {"content-type": "text/event-stream"}
ASK: Any = [{"role": "user", "content": "hi"}]
FAILED = Seen(error="failed")


class _Wire(httpx2.BaseTransport):
    """Answers every request with the bytes that were put here last, cut; one client for all saves their making."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=HEADERS, stream=_Cut(self.pieces), request=request)


class _Cut(httpx2.SyncByteStream):
    def __init__(self, cut: list[bytes]) -> None:
        self._cut = cut

    def __iter__(self) -> Iterator[bytes]:
        yield from self._cut


_wire = _Wire()


@cache
def _http() -> httpx2.Client:
    return httpx2.Client(transport=_wire)


@cache
def _openai() -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url="http://sdk.invalid/v1", http_client=_http(), max_retries=0)


@cache
def _anthropic() -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url="http://sdk.invalid", http_client=_http(), max_retries=0)


@cache
def _genai() -> genai.Client:
    options = types.HttpOptions(base_url="http://gemini.test", httpx_client=_http())
    return genai.Client(api_key="k", http_options=options)


def close_clients() -> None:
    """Close what was opened for the judges."""
    _http().close()
    for made in (_openai, _anthropic, _genai, _http):
        made.cache_clear()


def read_chat(raw: bytes, size: int) -> Seen:
    """Read a stream with the accumulator of `chat.completions.stream`."""
    _wire.pieces = pieces(raw, size)
    completion: Any
    try:
        with _openai().chat.completions.stream(model="m", messages=ASK) as stream:
            stream.until_done()
            # The final completion is the same parsed, and the parser of 3.49 trips over custom calls.
            completion = stream.current_completion_snapshot
    except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as error:
        completion = error.completion
    except openai.APIError:
        return FAILED
    choice = completion.choices[0]
    said = choice.message
    stops = {"stop": "done", "tool_calls": "calls", "length": "length", "content_filter": "filtered"}
    return Seen(
        text=said.content or "",
        refusal=said.refusal or "",
        reasoning=getattr(said, "reasoning_content", None) or "",
        calls=tuple(_chat_call(call.to_dict()) for call in said.tool_calls or ()),
        stop=stops[choice.finish_reason],
    )


def _chat_call(call: dict[str, Any]) -> tuple[str, str, str]:
    assert call["id"]
    body = call[call["type"]]
    if call["type"] == "custom":
        return ("custom", body["name"], body["input"])
    return ("function", body["name"], canonical(body["arguments"]))


def read_responses(raw: bytes, size: int) -> Seen:
    """Read a stream with the accumulator of `responses.stream`, which refuses whatever is out of order."""
    _wire.pieces = pieces(raw, size)
    with _openai().responses.stream(model="m", input="hi") as stream:
        events: list[Any] = list(stream)
        response = events[-1].response
        if response.status == "completed":
            response = stream.get_final_response()
    if response.status == "failed":
        return FAILED
    items = [item.to_dict() for item in response.output]
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    calls = tuple(_responses_call(item) for item in items if item["type"] in ("function_call", "custom_tool_call"))
    reasons = {"max_output_tokens": "length", "content_filter": "filtered"}
    is_cut = response.status == "incomplete"
    thoughts = [item for item in items if item["type"] == "reasoning"]
    return Seen(
        text="".join(part.get("text", "") for part in parts),
        refusal="".join(part.get("refusal", "") for part in parts),
        reasoning="".join(
            piece["text"] for item in thoughts for piece in (*item["summary"], *(item.get("content") or ()))
        ),
        calls=calls,
        stop=reasons[response.incomplete_details.reason] if is_cut else "calls" if calls else "done",
    )


def _responses_call(item: dict[str, Any]) -> tuple[str, str, str]:
    assert item["call_id"]
    if item["type"] == "custom_tool_call":
        return ("custom", item["name"], item["input"])
    name = f"{item['namespace']}__{item['name']}" if item.get("namespace") else item["name"]
    return ("function", name, canonical(item["arguments"]))


def read_messages(raw: bytes, size: int) -> Seen:
    """Read a stream with the accumulator of `messages.stream`."""
    _wire.pieces = pieces(raw, size)
    try:
        with _anthropic().messages.stream(model="m", max_tokens=1, messages=ASK) as stream:
            message = stream.get_final_message()
    except anthropic.APIError:
        return FAILED
    blocks: list[Any] = [block.to_dict(warnings=False) for block in message.content]
    stops = {
        "end_turn": "done",
        "pause_turn": "done",
        "tool_use": "calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "filtered",
    }
    calls = [block for block in blocks if block["type"] == "tool_use"]
    return Seen(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        reasoning="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        calls=tuple(("function", block["name"], canonical(json.dumps(block["input"]))) for block in calls),
        stop=stops.get(message.stop_reason or "", message.stop_reason or ""),
    )


def read_gemini(raw: bytes, size: int) -> Seen:
    """Read a stream as a user of `generate_content_stream` does: chunk by chunk."""
    _wire.pieces = pieces(raw, size)
    try:
        chunks = list(_genai().models.generate_content_stream(model="m", contents="hi"))
    except (genai.errors.APIError, json.JSONDecodeError):
        return FAILED
    found = [each for chunk in chunks for each in chunk.candidates or ()]
    parts: list[Any] = [part for each in found for part in (each.content and each.content.parts) or ()]
    (reason,) = [each.finish_reason.name for each in found if each.finish_reason]
    calls = tuple(
        ("function", part.function_call.name, _gemini_arguments(part.function_call.args or {}))
        for part in parts
        if part.function_call
    )
    stops = {"STOP": "calls" if calls else "done", "MAX_TOKENS": "length", "SAFETY": "filtered"}
    return Seen(
        text="".join(part.text for part in parts if part.text and not part.thought),
        reasoning="".join(part.text for part in parts if part.text and part.thought),
        calls=calls,
        stop=stops[reason],
    )


def _gemini_arguments(args: dict[str, Any]) -> str:
    """Return arguments; those that are no object travel under a name of their own."""
    return args["__raw"] if args.keys() == {"__raw"} else canonical(json.dumps(args))


READERS: dict[str, Callable[[bytes, int], Seen]] = {
    "chat": read_chat,
    "responses": read_responses,
    "messages": read_messages,
    "gemini": read_gemini,
}


def plain(seen: Seen, other: Seen) -> Seen:
    """Return what can be told apart from another reading of the same stream: no white space between texts, no usage.

    Arguments that are no JSON, Anthropic's reader keeps as far as they are valid: where one reading has such a call,
    the arguments of that call do not count. Nor does a call that one reading alone has behind those of an answer that
    was cut: the accumulators of Chat and Messages keep the beginning of a call that never ended.
    """
    if seen.error:
        return FAILED
    if seen.stop in ("length", "filtered"):
        seen = msgspec.structs.replace(seen, calls=seen.calls[: len(other.calls)])
    pairs = zip(seen.calls, other.calls, strict=False)
    calls = [(kind, name, text if _is_json(text, there[2]) else "") for (kind, name, text), there in pairs]
    texts = {name: "".join(getattr(seen, name).split()) for name in ("text", "refusal", "reasoning")}
    return msgspec.structs.replace(seen, **texts, calls=(*calls, *seen.calls[len(calls) :]), usage=None)


def _is_json(*texts: str) -> bool:
    try:
        return all(isinstance(json.loads(text), dict) for text in texts)
    except ValueError:
        return False
