"""A provider that costs almost nothing: it looks for the model's name in the request and writes bytes made before.

Runs in its own process and prints its port. Every event of a stream is an HTTP chunk of its own, as providers send
them, but a whole stream is one write, so what is measured is work and not pacing. Three models write over time:
`bench-drip` a word each two seconds without an end, `bench-first` one word at once and the rest 10 ms later, and
`bench-paced` fifty words 20 ms apart, each with the time of its writing, so that whoever reads it knows how long it
took on its way.
"""

import asyncio
import re
import socket
import ssl
import sys
import time

import uvloop

from bench.rig.replies import DONE, DRIP, FIRST, PACED, STREAM_HEAD, end, event, model_of, reply

DRIP_S = 2.0
PACED_S = 0.02
FIRST_S = 0.01
PACED_EVENTS = 50
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"transfer-encoding:\s*chunked", re.IGNORECASE)


class Upstream(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (size := self._request_bytes()) and len(self._buffer) >= size:
            body = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._answer(body)

    def _request_bytes(self) -> int:
        end_of_head = self._buffer.find(b"\r\n\r\n")
        if end_of_head < 0:
            return 0
        if length := _LENGTH.search(self._buffer, 0, end_of_head):
            return end_of_head + 4 + int(length[1])
        if _CHUNKED.search(self._buffer, 0, end_of_head):
            last = self._buffer.find(b"\r\n0\r\n\r\n", end_of_head)
            return last + 7 if last >= 0 else 0
        return end_of_head + 4

    def _answer(self, body: bytes) -> None:
        model = model_of(body)
        if model not in (DRIP, PACED, FIRST):
            self._transport.write(reply(body))
            return
        self._transport.write(STREAM_HEAD + event({"role": "assistant", "content": ""}))
        if model == DRIP:
            self._drip()
        elif model == FIRST:
            self._transport.write(event({"content": "word "}))
            self._timer = asyncio.get_running_loop().call_later(FIRST_S, self._end)
        else:
            self._pace(0, asyncio.get_running_loop().time())

    def _end(self) -> None:
        self._transport.write(event({"content": DONE}) + end("stop"))

    def _drip(self) -> None:
        self._transport.write(event({"content": "word "}))
        self._timer = asyncio.get_running_loop().call_later(DRIP_S, self._drip)

    def _pace(self, number: int, began: float) -> None:
        if number == PACED_EVENTS:
            self._end()
            return
        self._transport.write(event({"content": f"at={time.perf_counter_ns()}; "}))
        due = began + (number + 1) * PACED_S
        self._timer = asyncio.get_running_loop().call_at(due, self._pace, number + 1, began)


async def main() -> None:
    """Listen and say where; with a certificate and its key, by TLS."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    context = None
    if len(sys.argv) > 1:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*sys.argv[1:3])
    server = await asyncio.get_running_loop().create_server(Upstream, sock=listener, backlog=2048, ssl=context)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
