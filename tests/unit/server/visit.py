"""A client without a network: drives an ASGI application and keeps what it answers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from treadle.http.asgi import AsgiMessage, Receive, Scope, Send
from treadle.server.app import App
from treadle.server.http_exchange import SAFE_METHODS
from treadle.server.run_response import RunResponse
from unit.server.person import person_header

BOUND_S = 5.0
LOCAL = ("host", "localhost:8700")
JSON_TYPE = ("content-type", "application/json")


class Visit:
    """One request to an application and the answer so far.

    A change by Treadle's own API is a person's, as on the pages, unless `is_person` says otherwise: where nobody is
    asked for a credential the request brings a person's key.
    """

    def __init__(
        self,
        app: Any,
        method: str,
        path: str,
        *,
        headers: Sequence[tuple[str, str]] = (LOCAL,),
        body: bytes | Sequence[bytes] = b"",
        is_person: bool = True,
    ) -> None:
        if is_person and method not in SAFE_METHODS and path.startswith("/treadle/v1/"):
            headers = [*headers, *_credential(app, headers)]
        raw_path, _, query = path.partition("?")
        self.scope: Scope = {
            "type": "http",
            "method": method,
            "path": raw_path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        }
        chunks = [body] if isinstance(body, bytes) else list(body)
        self._inbox: asyncio.Queue[AsgiMessage] = asyncio.Queue()
        for number, chunk in enumerate(chunks, 1):
            self._inbox.put_nowait({"type": "http.request", "body": chunk, "more_body": number < len(chunks)})
        self.status = 0
        self.headers: dict[str, str] = {}
        self.writes: list[bytes] = []
        self.is_complete = False
        self._news = asyncio.Condition()
        self._app = app
        self._task: asyncio.Task[None] | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    async def run(self) -> "Visit":
        """Make the request and wait for the whole answer."""
        self.begin()
        return await self.done()

    def begin(self) -> "Visit":
        """Make the request without waiting for the answer."""
        receive: Receive = self._receive
        send: Send = self._send
        self._task = asyncio.create_task(self._app(self.scope, receive, send))
        return self

    async def done(self) -> "Visit":
        """Wait until the application has returned."""
        assert self._task is not None
        async with asyncio.timeout(BOUND_S):
            await self._task
        return self

    async def until(self, needle: bytes) -> None:
        """Wait until these bytes have come."""
        async with asyncio.timeout(BOUND_S), self._news:
            await self._news.wait_for(lambda: needle in self.body)

    async def until_after(self, start: int, needle: bytes) -> None:
        """Wait until these bytes have come behind the first `start` ones."""
        async with asyncio.timeout(BOUND_S), self._news:
            await self._news.wait_for(lambda: needle in self.body[start:])

    def leave(self) -> None:
        """Go away without waiting for the end."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def _receive(self) -> AsgiMessage:
        return await self._inbox.get()

    async def _send(self, message: AsgiMessage) -> None:
        async with self._news:
            if message["type"] == "http.response.start":
                assert self.status == 0, "a second start of the answer"
                self.status = message.get("status", 0)
                self.headers = {name.decode(): value.decode("latin-1") for name, value in message.get("headers", [])}
            else:
                assert self.status != 0, "a body before the start of the answer"
                assert not self.is_complete, "a body after the end of the answer"
                self.writes.append(message.get("body", b""))
                self.is_complete = not message.get("more_body", False)
            self._news.notify_all()


def _credential(app: Any, headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    is_known = not {"authorization", "x-api-key", "x-goog-api-key", "cookie"}.isdisjoint(name for name, _ in headers)
    if is_known or not isinstance(app, App) or app.service.clients.needs_key or app.service.gate.needs_login:
        return []
    return [person_header(app)]


class Silences:
    """Counts the silences that were to be broken."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._count, self._news = 0, asyncio.Event()
        once = RunResponse._send_keep_alive

        async def counting(reply: RunResponse) -> None:
            await once(reply)
            self._count += 1
            self._news.set()

        patch.setattr(RunResponse, "_send_keep_alive", counting)

    async def until(self, count: int) -> None:
        """Wait until there were so many."""
        async with asyncio.timeout(BOUND_S):
            while self._count < count:
                self._news.clear()
                await self._news.wait()
