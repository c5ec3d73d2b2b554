"""An upstream that means no good: the model's name says what it does, byte by byte, on a socket of its own."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Reply = Callable[["Line"], None]
LISTEN = 256


class Line:
    """One connection of the gateway: what it asked, and the way to answer."""

    def __init__(self, connection: socket.socket, asked: dict[str, Any], head: str) -> None:
        self.connection = connection
        self.asked = asked
        self.head = head

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.connection.sendall(data)

    def open(self, kind: str = "text/event-stream", status: str = "200 OK", *headers: str) -> None:
        """Begin an answer that ends with the connection."""
        lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", "connection: close", *headers]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def gone(self) -> bool:
        """Wait until the gateway has left, and say so."""
        with contextlib.suppress(OSError):
            self.connection.settimeout(20)
            return self.connection.recv(1) == b""
        return True


def frame(value: Any) -> bytes:
    """Write a frame of a stream."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """Write a chunk of a chat answer."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return frame(
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    )


def call(arguments: str, *, name: str | None = "get_weather", call_id: str | None = "call_1", index: Any = 0) -> bytes:
    """Write a chunk with a piece of a call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    piece = {"index": index, "type": "function", "function": function} | ({"id": call_id} if call_id else {})
    return chunk({"tool_calls": [piece]})


DONE = b"data: [DONE]\n\n"


def say(text: str) -> bytes:
    """Write a whole good answer."""
    return chunk({"role": "assistant", "content": text}) + chunk(finish="stop") + DONE


def good(line: Line) -> None:
    """Answer as one should."""
    line.open()
    line.send(say("All is well."))


@contextmanager
def hostile_upstream(replies: dict[str, Reply]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Listen on loopback; yield the address and, as they come, the requests."""
    received: list[dict[str, Any]] = []
    with socket.create_server(("127.0.0.1", 0), backlog=LISTEN) as listener:
        thread = threading.Thread(target=_accept, args=(listener, replies, received), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _accept(listener: socket.socket, replies: dict[str, Reply], received: list[dict[str, Any]]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, replies, received), daemon=True).start()


def _answer(connection: socket.socket, replies: dict[str, Reply], received: list[dict[str, Any]]) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(20)
        stream = connection.makefile("rb")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return
            head += line
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = stream.read(int(lengths[0])) if lengths else b"{}"
        asked = json.loads(body or b"{}")
        received.append(asked)
        replies.get(asked.get("model", ""), good)(Line(connection, asked, head.decode("latin-1")))
