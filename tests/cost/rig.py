"""A whole Treadle without sockets: requests go in as ASGI, the upstream's answers are bytes made before.

What is counted is therefore Treadle's own work, from the parsed head of a request to the last byte of its answer.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from treadle import tool
from treadle.config import Settings, StoreSection, Upstream
from treadle.http.asgi import DISCONNECT_IN_SCOPE, EDGE_IN_SCOPE, WHOLE_IN_SCOPE
from treadle.http.client_connection import BytesConsumer
from treadle.providers.provider_client import HttpAnswer, HttpClient
from treadle.providers.provider_endpoint import Endpoint
from treadle.runtime import Runtime
from treadle.server.app import App

DONE = "cost-done"
ROUNDS = 4
LOOPS = 3
"""How often the event loop turns between two events of an answer that comes slowly."""

_HEAD = {"id": "chatcmpl-cost", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


class Case(NamedTuple):
    """One kind of request: its path, its model (which says what the upstream answers), whether it streams.

    `turns` is how much was said before, by both sides.
    """

    path: str
    model: str
    stream: bool = True
    turns: int = 0

    def body(self) -> bytes:
        """Return the request."""
        asked = dict(_ASKED[self.path])
        if self.turns:
            said = [
                {"role": ("user", "assistant")[turn % 2], "content": f"words of {turn}"} for turn in range(self.turns)
            ]
            asked["messages"] = [*said, *asked["messages"]]
        return json.dumps({"model": self.model, "stream": self.stream, **asked}).encode()


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
_TALK = {"messages": [{"role": "user", "content": "go"}]}
_ASKED: dict[str, dict[str, Any]] = {CHAT: _TALK, RESPONSES: {"input": "go"}, MESSAGES: {**_TALK, "max_tokens": 9_999}}
CASES = {
    "plain": Case(CHAT, "text-1", stream=False),
    "same protocol, 100 events": Case(CHAT, "text-100"),
    "same protocol, 1000 events": Case(CHAT, "text-1000"),
    "one by one, 100 events": Case(CHAT, "slow-100"),
    "one by one, 1000 events": Case(CHAT, "slow-1000"),
    "as Responses, 100 events": Case(RESPONSES, "text-100"),
    "as Responses, 1000 events": Case(RESPONSES, "text-1000"),
    "as Messages, 100 events": Case(MESSAGES, "text-100"),
    "as Messages, 1000 events": Case(MESSAGES, "text-1000"),
    "plain, 400 turns of history": Case(CHAT, "text-1", stream=False, turns=400),
    "no tool round": Case(CHAT, "tools-0"),
    "tool rounds": Case(CHAT, f"tools-{ROUNDS}"),
}


def _frame(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({**_HEAD, "choices": [choice], **more}, separators=(",", ":")).encode() + b"\n\n"


def _stream(frames: list[bytes], finish: str) -> bytes:
    first, last = _frame({"role": "assistant", "content": ""}), _frame({}, finish, usage=_USAGE)
    return b"".join([first, *frames, last, b"data: [DONE]\n\n"])


def _said(count: int) -> bytes:
    words = [_frame({"content": f"word{number} "}) for number in range(count - 1)]
    return _stream([*words, _frame({"content": DONE})], "stop")


def _called(number: int) -> bytes:
    function = {"name": "cost_add", "arguments": json.dumps({"a": number, "b": 1})}
    return _stream([_frame({"tool_calls": [{"index": 0, "id": f"call_{number}", "function": function}]})], "tool_calls")


_TEXTS = {count: _said(count) for count in (1, 100, 1000)}
_CALLS = [_called(number) for number in range(ROUNDS)]


def _answer(body: bytes) -> bytes:
    kind, _, number = json.loads(body)["model"].partition("-")
    if kind != "tools":
        return _TEXTS[int(number)]
    results = body.count(b'"role":"tool"')
    return _CALLS[results] if results < int(number) else _TEXTS[1]


class Canned:
    """An answer that is there; it is its own body."""

    status = 200
    content_type = "text/event-stream"
    headers: Mapping[str, str] = {"content-type": content_type}

    def __init__(self, data: bytes, *, is_slow: bool = False) -> None:
        frames = data.split(b"\n\n")[:-1] if is_slow else []
        self._pieces = [b"", *(frame + b"\n\n" for frame in reversed(frames))] if is_slow else [b"", data]
        self._is_slow = is_slow

    @property
    def content(self) -> "Canned":
        return self

    async def readany(self) -> bytes:
        return self._pieces.pop() if self._pieces else b""

    async def read_into(self, take: BytesConsumer) -> Any:
        if self._is_slow:
            loop = asyncio.get_running_loop()
            made: asyncio.Future[Any] = loop.create_future()
            loop.call_soon(self._arrive, take, made, LOOPS)
            return await made
        data = self._pieces.pop() if self._pieces else b""
        return take(data) if data else None

    def _arrive(self, take: BytesConsumer, made: "asyncio.Future[Any]", loops: int) -> None:
        """Let the next event come as from a connection: whoever listens hears of it before the one after it comes."""
        loop = asyncio.get_running_loop()
        if loops:
            loop.call_soon(self._arrive, take, made, loops - 1)
            return
        data = self._pieces.pop() if self._pieces else b""
        something = take(data) if data else None
        if data and something is None:
            loop.call_soon(self._arrive, take, made, LOOPS)
        elif not made.done():
            made.set_result(something)

    async def end(self) -> None:
        """Have nothing to wait for."""

    def close(self) -> None:
        """Have nothing to give back."""


async def _send(
    _: HttpClient, endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], run_id: str
) -> HttpAnswer:
    return Canned(_answer(body), is_slow=b'"slow-' in body)


@tool(effect="read")
def cost_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Taking:
    """A client of our own server that takes everything at once. Fits `asgi.Edge`."""

    is_flowing = True

    def __init__(self, body: bytes, status: list[int], sent: list[bytes]) -> None:
        self._body = body
        self._status = status
        self._sent = sent

    def is_direct(self, receive: Any, send: Any) -> bool:
        return True

    def try_take_body_now(self) -> bytes | None:
        return self._body

    def try_start_now(self, status: int, headers: Any, data: bytes, *, is_whole: bool) -> bool:
        self._status.append(status)
        self._sent.append(data)
        return True

    def write_now(self, data: bytes) -> None:
        self._sent.append(data)


class Rig:
    """Makes requests of an application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def ask(self, case: Case) -> bytes:
        """Make a request and return the body of its answer, which must be the right one."""
        body, sent, status = case.body(), list[bytes](), list[int]()
        waiting = [{"type": "http.request", "body": body, "more_body": False}]
        scope = {
            "type": "http",
            "method": "POST",
            "path": case.path,
            "query_string": b"",
            DISCONNECT_IN_SCOPE: None,
            EDGE_IN_SCOPE: Taking(body, status, sent),
            WHOLE_IN_SCOPE: True,
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
        }

        async def receive() -> Any:
            return waiting.pop() if waiting else await _for_ever()

        async def send(message: Any) -> None:
            status.append(message.get("status", 0))
            sent.append(message.get("body", b""))

        await self._app(scope, receive, send)  # type: ignore[arg-type]
        answer = b"".join(sent)
        assert status[0] == 200, answer
        assert DONE.encode() in answer, answer
        return answer

    async def calls(self, case: Case, times: int = 3) -> int:
        """Return how many Python functions are called, or gone on with, for one request; the least of a few."""
        await self.ask(case)
        counts: list[int] = []
        for _ in range(times):
            count = 0

            def heard(frame: FrameType, event: str, argument: object) -> None:
                nonlocal count
                count += event == "call"

            sys.setprofile(heard)
            try:
                await self.ask(case)
            finally:
                sys.setprofile(None)
            counts.append(count)
        return min(counts)


async def _for_ever() -> Any:
    await asyncio.get_running_loop().create_future()


def _tool(number: int) -> Any:
    @tool(name=f"cost_{number}", effect="read")
    def look(place: str, depth: int = 1) -> str:
        """Look at a place."""
        return place

    return look


@asynccontextmanager
async def rig(folder: Path, *, is_kept: bool, tools: int = 0) -> AsyncIterator[Rig]:
    """Open a Treadle in front of the made answers, with its journal off, or in a file, and so many more tools."""
    settings = Settings(
        store=StoreSection(url=f"sqlite:///{folder}/cost.db", persistence="on" if is_kept else "off"),
        upstream=(Upstream(name="up", base_url="http://127.0.0.1:1/v1", models=("text-*", "slow-*", "tools-*")),),
    )
    real, HttpClient.send = HttpClient.send, _send  # type: ignore[method-assign]
    try:
        async with Runtime(settings, tools=[cost_add, *map(_tool, range(tools))]) as runtime:
            yield Rig(App(runtime))
    finally:
        HttpClient.send = real  # type: ignore[method-assign]
