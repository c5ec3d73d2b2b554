"""The parts alone do for a plain request what they are compared for: the same answer, the same entries."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bench.rig.floor import Floor
from bench.rig.replies import DONE
from bench.rig.requests import TALK
from bench.rig.upstream import Upstream as Upstreaming

from treadle.config import Settings, StoreSection, Upstream
from treadle.journal.sqlite.store import SqliteStore
from treadle.runtime import Parts, Runtime
from treadle.server.app import App

BODY = json.dumps({"model": "bench-plain", "stream": False, **TALK["chat"]}).encode()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """An upstream in this process."""
    server = await asyncio.get_running_loop().create_server(Upstreaming, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    server.close()


async def ask(app: Any) -> dict[str, Any]:
    """Ask an application the plain request, its body in two pieces."""
    pieces = [BODY[:100], BODY[100:]]
    status, sent = list[int](), list[bytes]()

    async def receive() -> Any:
        if not pieces:
            await asyncio.get_running_loop().create_future()
        body = pieces.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        if "status" in message:
            status.append(message["status"])
        sent.append(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    assert status == [200]
    return json.loads(b"".join(sent))


async def kinds(store: SqliteStore) -> list[str]:
    """Return the kinds of the entries of the only run, which must be sound and over."""
    [row] = await store.list_runs(limit=2)
    assert row.status == "completed"
    assert all(line.sha256 == line.expected != "" for line in await store.audit(row.id))
    return [entry.kind for entry in await store.entries(row.id)]


async def test_it_answers_what_the_upstream_says(url: str) -> None:
    """Without a journal."""
    floor = Floor(f"{url}/chat/completions", None)
    answer = await ask(floor)
    await floor.close()
    assert answer["choices"][0]["message"]["content"] == DONE
    assert answer["usage"]["total_tokens"] == 20


async def test_it_writes_the_entries_that_treadle_writes(url: str, tmp_path: Path) -> None:
    """Of the same kinds, in the same order, chained and ended: else what they cost could not be compared."""
    kept = [tmp_path / "parts.db", tmp_path / "treadle.db"]
    stores = [SqliteStore(str(file)) for file in kept]
    await stores[0].open()
    floor = Floor(f"{url}/chat/completions", stores[0])
    await ask(floor)
    await floor.close()
    settings = Settings(
        store=StoreSection(url=f"sqlite:///{kept[1]}"),
        upstream=(Upstream(name="bench", base_url=url, models=("bench-*",)),),
    )
    async with Runtime(settings, parts=Parts(env={})) as runtime:
        await ask(App(runtime))
    await stores[1].open()
    alone, whole = [await kinds(store) for store in stores]
    for store in stores:
        await store.close()
    assert alone == whole
