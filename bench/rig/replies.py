"""The bytes that the benchmark's provider answers with, made once: pure, so that they can be tested without a socket.

A model's name says what is wanted: `bench-plain`, `bench-N` (N events in one piece, any number), `bench-burst-N` (the
same events, each a piece of its own), `bench-tools-K` (K tool rounds, then text), `bench-thinks-K` (the same in one
piece, with a thought in each), and `bench-drip`, `bench-paced` and `bench-first`, which the upstream itself writes over
time.
"""

import json
import re
from functools import cache

DONE = "bench-done"
TOOL = "bench_add"
EVENTS_MAX = 100_000
DRIP, PACED, FIRST = b"bench-drip", b"bench-paced", b"bench-first"

_MODEL = re.compile(rb'"model":\s*"([^"]+)"')
_STREAM = re.compile(rb'"stream":\s*true')
_RESULT = re.compile(rb'"role":\s*"tool"')
_EVENTS = re.compile(rb"bench-(\d+)\Z")
_BURST = re.compile(rb"bench-burst-(\d+)\Z")
_TOOLS = re.compile(rb"bench-tools-(\d+)\Z")
_THINKS = re.compile(rb"bench-thinks-(\d+)\Z")
_THOUGHT = "One should add the numbers. " * 4
_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
_HEAD = {"id": "chatcmpl-bench", "created": 1, "model": "bench"}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(delta: dict, finish: str | None = None, **more: object) -> bytes:
    """Return one event of a chat stream, as an HTTP chunk of its own."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {**_HEAD, "object": "chat.completion.chunk", "choices": [choice], **more}
    data = b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def end(finish: str) -> bytes:
    """Return how a stream ends."""
    return event({}, finish, usage=_USAGE) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@cache
def text_pieces(count: int) -> tuple[bytes, ...]:
    """Return a stream of so many deltas of text, the last of which is the mark: beginning, each delta, end."""
    words = [event({"content": f"word{number} "}) for number in range(count - 1)]
    first = STREAM_HEAD + event({"role": "assistant", "content": ""})
    return (first, *words, event({"content": DONE}), end("stop"))


@cache
def text_stream(count: int) -> bytes:
    """Return the same stream in one piece."""
    return b"".join(text_pieces(count))


@cache
def _message(number: int | None) -> dict:
    if number is None:
        return {"role": "assistant", "content": DONE}
    function = {"name": TOOL, "arguments": json.dumps({"a": number, "b": 1})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


@cache
def call_stream(number: int) -> bytes:
    """Return a stream that asks for the tool once."""
    [call] = _message(number)["tool_calls"]
    first = event({"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call}]})
    return STREAM_HEAD + first + end("tool_calls")


@cache
def whole(number: int | None, thought: str = "") -> bytes:
    """Return an answer that is not streamed: a call with this number, or text, perhaps with a thought before it."""
    message = {**_message(number), "reasoning_content": thought} if thought else _message(number)
    choice = {"index": 0, "message": message, "finish_reason": "stop" if number is None else "tool_calls"}
    return document("200 OK", {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE})


def document(status: str, value: object) -> bytes:
    """Return an answer with a JSON body."""
    data = json.dumps(value, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


UNKNOWN = document("404 Not Found", {"error": {"message": "no such model", "type": "invalid_request_error"}})


def model_of(body: bytes) -> bytes:
    """Return the model that a request names, or nothing."""
    found = _MODEL.search(body)
    return found[1] if found else b""


def burst(model: bytes) -> tuple[bytes, ...]:
    """Return the pieces of a stream that is to be written event by event, or nothing for any other model."""
    asked = _BURST.match(model)
    return text_pieces(_count(asked)) if asked else ()


def _count(asked: re.Match[bytes]) -> int:
    return min(max(int(asked[1]), 1), EVENTS_MAX)


def reply(body: bytes) -> bytes:
    """Return the answer to a request, which is read no further than it must be."""
    model = model_of(body)
    is_stream = _STREAM.search(body) is not None
    if model == b"bench-plain":
        return text_stream(1) if is_stream else whole(None)
    if asked := _EVENTS.match(model):
        return text_stream(_count(asked)) if is_stream else whole(None)
    if asked := _TOOLS.match(model):
        done = len(_RESULT.findall(body))
        if done >= int(asked[1]):
            return text_stream(1) if is_stream else whole(None)
        return call_stream(done) if is_stream else whole(done)
    if asked := _THINKS.match(model):
        done = len(_RESULT.findall(body))
        return whole(done if done < int(asked[1]) else None, _THOUGHT)
    return UNKNOWN
