"""A provider that costs almost nothing: it looks for the model's name in the request and writes bytes made before.

Runs in its own process and prints its port. Every event of a stream is an HTTP chunk of its own, as providers send
them, but the whole stream is one write, so what is measured is work and not pacing.
"""

import asyncio
import json
import re
import socket

import uvloop

TOOL_ROUNDS = 5
EVENTS = {"bench-plain": 1, "bench-short": 3, "bench-100": 100, "bench-1000": 1000, "bench-tools": 1}
DONE = "bench-done"

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_MODEL = re.compile(rb'"model":\s*"([^"]+)"')
_STREAM = re.compile(rb'"stream":\s*true')
_RESULT = re.compile(rb'"role":\s*"tool"')
_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def _chunk(delta: dict, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    return b"data: " + json.dumps({**head, "choices": [choice], **more}, separators=(",", ":")).encode() + b"\n\n"


def _stream(events: list[bytes], finish: str) -> bytes:
    events = [
        _chunk({"role": "assistant", "content": ""}),
        *events,
        _chunk({}, finish, usage=_USAGE),
        b"data: [DONE]\n\n",
    ]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def _text_stream(count: int) -> bytes:
    return _stream(
        [*(_chunk({"content": f"word{number} "}) for number in range(count - 1)), _chunk({"content": DONE})], "stop"
    )


def _call_stream(number: int) -> bytes:
    function = {"name": "bench_add", "arguments": json.dumps({"a": number, "b": 1})}
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
    return _stream([_chunk({"tool_calls": [call]})], "tool_calls")


def _body(status: str, value: object) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode()
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status.encode(),
        len(data),
        data,
    )


STREAMS = {model.encode(): _text_stream(count) for model, count in EVENTS.items()}
CALLS = [_call_stream(number) for number in range(TOOL_ROUNDS)]
PLAIN = _body(
    "200 OK",
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": DONE}, "finish_reason": "stop"}],
        "usage": _USAGE,
    },
)
UNKNOWN = _body("404 Not Found", {"error": {"message": "no such model", "type": "invalid_request_error"}})


def reply(body: bytes) -> bytes:
    found = _MODEL.search(body)
    model = found[1] if found else b""
    if model not in STREAMS:
        return UNKNOWN
    if model == b"bench-tools":
        results = len(_RESULT.findall(body))
        return CALLS[results] if results < TOOL_ROUNDS else STREAMS[model]
    return STREAMS[model] if _STREAM.search(body) else PLAIN


class Upstream(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._buffer, 0, end)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < size:
                return
            body, self._buffer = self._buffer[end + 4 : size], self._buffer[size:]
            self._transport.write(reply(body))


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = await asyncio.get_running_loop().create_server(Upstream, sock=listener)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
