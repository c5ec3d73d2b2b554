"""The parts that Treadle is made of and nothing between them: server, client, one decode and encode, and the journal.

It is what a plain request costs before Treadle does anything for it: no keys, limits, metrics, plans, translation,
tools, scanner, redaction or cancellation, and every mistake is a traceback. With a store it writes the entries that
Treadle writes for such a request, durably, before it answers. Runs in its own process and prints its port:
`python -m bench.rig.floor URL off|sqlite:///…`.
"""

import asyncio
import gc
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import uvicorn
import uvloop

from treadle.cli.commands.serve_command import GC_THRESHOLDS
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage
from treadle.http.client_pool import ClientPool
from treadle.journal.journal_interface import RunRow
from treadle.journal.sqlite.store import SqliteStore
from treadle.runtime.injected_parts import RandomIds

LEASE_S = 15.0
_HEADERS = {"content-type": "application/json", "authorization": "Bearer none"}
_ANSWER_HEADERS = [(b"content-type", b"application/json")]


class _Said(msgspec.Struct):
    role: str
    content: str


class _Asked(msgspec.Struct):
    """A request, so far as a proxy must know it; the tools are carried as they are."""

    model: str
    messages: list[_Said]
    tools: list[msgspec.Raw] = []
    stream: bool = False


class _Choice(msgspec.Struct):
    message: _Said
    index: int = 0
    finish_reason: str = ""


class _Counted(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class _Answered(msgspec.Struct):
    model: str
    choices: list[_Choice]
    usage: _Counted
    id: str = ""
    object: str = "chat.completion"
    created: int = 0


_asked = msgspec.json.Decoder(_Asked)
_answered = msgspec.json.Decoder(_Answered)
_encode = msgspec.json.Encoder().encode
_ids = RandomIds()
_FRAME = msgspec.Raw(b'{"offers":[{"name":"get_weather"},{"name":"opening_hours"},{"name":"bench_add"}]}')

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Floor:
    """An ASGI application that asks the upstream what it is asked."""

    def __init__(self, url: str, store: SqliteStore | None) -> None:
        self._url = url
        self._store = store
        self._pool = ClientPool(1_000)

    async def close(self) -> None:
        """Give the connections up."""
        await self._pool.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        message = await receive()
        body = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        asked = _asked.decode(body)
        answered = await self._ask(asked)
        name = _ids.new("x")[2:]
        answered.id = f"chatcmpl-{name}"
        if self._store is not None:
            await self._keep(self._store, name, asked, answered)
        said = _encode(answered)
        headers = [*_ANSWER_HEADERS, (b"content-length", b"%d" % len(said))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": said})

    async def _ask(self, asked: _Asked) -> _Answered:
        reply = await self._pool.request("POST", self._url, _HEADERS, _encode(asked), connect_s=10.0, idle_s=60.0)
        body = await reply.read_all(1_000_000)
        reply.close()
        return _answered.decode(body)

    async def _keep(self, store: SqliteStore, name: str, asked: _Asked, answered: _Answered) -> None:
        """Write what Treadle writes of such a run: twelve entries, their run and its request."""
        now, run_id = time.time(), f"run_{name}"
        row = RunRow(
            id=run_id,
            response_id=answered.id,
            conversation_id=f"conv_{name}",
            protocol="chat",
            model=asked.model,
            created_at=now,
            request=msgspec.Raw(_encode({"model": asked.model, "tools": asked.tools})),
        )
        started = msgspec.Raw(_encode({"type": "run.started", "run_id": run_id, "model": asked.model}))
        entries = [Entry(kind="status", at=now, content="running", data=started)]
        entries += [
            Entry(kind=said.role, is_input=True, at=now, item_id=f"msg_{name}_{at}", content=said.content)  # type: ignore[arg-type]
            for at, said in enumerate(asked.messages, 1)
        ]
        entries.append(Entry(kind="frame", at=now, data=_FRAME))
        journal = await store.start_run(row, entries, owner="floor", lease_s=LEASE_S, is_private=True)
        usage = answered.usage
        counted = Usage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
        ended = RunEnded(status="completed", usage=counted, rounds=1, ended_at=now)
        plan = {"round": 1, "fingerprint": os.urandom(32).hex(), "items": 6, "tools": 3, "tools_sha256": "0" * 64}
        last = [
            Entry(kind="plan", at=now, name=asked.model, data=msgspec.Raw(_encode(plan))),
            Entry(kind="assistant", at=now, item_id=f"msg_{name}", content=answered.choices[0].message.content),
            Entry(kind="reply", at=now, content="finished", data=msgspec.Raw(_encode({"usage": counted}))),
            Entry(kind="status", at=now, content="completed", data=msgspec.Raw(_encode(ended))),
        ]
        await journal.finish(last, ended)


async def main() -> None:
    """Serve until the process is ended."""
    url, where = sys.argv[1:]
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    async with AsyncExitStack() as stack:
        store = None
        if where != "off":
            store = SqliteStore(where.removeprefix("sqlite:///"))
            await store.open()
            stack.push_async_callback(store.close)
        floor = Floor(f"{url}/chat/completions", store)
        stack.push_async_callback(floor.close)
        listener = socket.create_server(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(floor, http="httptools", lifespan="off", log_level="warning", access_log=False)
        await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    if sys.platform == "win32":
        asyncio.run(main())
    else:
        uvloop.run(main())
