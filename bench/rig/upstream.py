"""A provider that costs almost nothing: it looks for the model's name in the request and writes bytes made before.

Runs in its own process and prints its port. Every event of a stream is an HTTP chunk of its own, as providers send
them. `bench-burst-N` writes each by itself, without a pause, in turn with all other bursts; other streams are one
write. Three models write over time: `bench-drip` a word each two seconds without an end, `bench-first` one word at once
and the rest 10 ms later, and `bench-paced` fifty words 20 ms apart, each with the time of its writing, so that whoever
reads it knows how long it took on its way. A paced stream thinks for half a second, so that all that are asked for
together are there when the first speaks, and then has its own millisecond to begin at: neither their words nor their
ends come in one rush.
"""

import asyncio
import os
import re
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from math import ceil

import uvloop

from bench.rig.replies import DONE, DRIP, FIRST, PACED, STREAM_HEAD, burst, end, event, model_of, reply

DRIP_S = 2.0
PACED_S = 0.02
FIRST_S = 0.01
PACED_EVENTS = 100
THINKS_S = 0.5
PLACES = 200
PLACE_S = 0.001
"""Where a paced stream may begin: each millisecond, as fine as uvloop's timers are, of ten intervals."""

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"transfer-encoding:\s*chunked", re.IGNORECASE)


class Upstream(asyncio.Protocol):
    """One connection."""

    # Steps of 7 visit all of them, and spread a few streams as evenly as many, over the 20 ms of an interval too.
    _places = cycle([7 * each % PLACES for each in range(PLACES)])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._is_clear = transport.get_extra_info("ssl_object") is None
        wire = transport.get_extra_info("socket")
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = wire.fileno()
        self._buffer = bytearray()
        self._next: asyncio.Handle | None = None

    def connection_lost(self, error: Exception | None) -> None:
        if self._next is not None:
            self._next.cancel()

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
        if pieces := burst(model):
            self._burst(pieces)
            return
        if model not in (DRIP, PACED, FIRST):
            self._transport.write(reply(body))
            return
        self._transport.write(STREAM_HEAD + event({"role": "assistant", "content": ""}))
        if model == DRIP:
            self._drip()
        elif model == FIRST:
            self._transport.write(event({"content": "word "}))
            self._next = asyncio.get_running_loop().call_later(FIRST_S, self._end)
        else:
            self._begin_pace()

    def _burst(self, pieces: Sequence[bytes], number: int = 0) -> None:
        """Write one piece to the socket, then let the other streams write theirs.

        What the socket has no room for is left to the transport, with all that comes after it.
        """
        if self._transport.is_closing():
            return
        piece = pieces[number]
        sent = write_now(self._descriptor, piece) if self._is_clear else 0
        if sent < len(piece):
            self._transport.write(piece[sent:])
            self._transport.writelines(pieces[number + 1 :])
        elif number + 1 < len(pieces):
            self._next = asyncio.get_running_loop().call_soon(self._burst, pieces, number + 1)

    def _begin_pace(self) -> None:
        loop = asyncio.get_running_loop()
        began = ceil((loop.time() + THINKS_S) / PACED_S) * PACED_S + next(self._places) * PLACE_S
        self._next = loop.call_at(began, self._pace, 0, began)

    def _end(self) -> None:
        self._transport.write(event({"content": DONE}) + end("stop"))

    def _drip(self) -> None:
        self._transport.write(event({"content": "word "}))
        self._next = asyncio.get_running_loop().call_later(DRIP_S, self._drip)

    def _pace(self, number: int, began: float) -> None:
        if number == PACED_EVENTS:
            self._end()
            return
        self._transport.write(event({"content": f"at={time.perf_counter_ns()}; "}))
        due = began + (number + 1) * PACED_S
        self._next = asyncio.get_running_loop().call_at(due, self._pace, number + 1, began)


def write_now(descriptor: int, piece: bytes) -> int:
    """Write to a socket and return how much it took."""
    try:
        return os.write(descriptor, piece)
    except OSError:
        # There is no room, or nobody reads any more, which the transport finds out by itself.
        return 0


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
