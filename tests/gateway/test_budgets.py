"""Budgets hold for all processes together: asked one after another or all at once, exactly the bound passes."""

import asyncio
import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from chaos.server import Server, prepare, servers
from postgres import postgres_server
from treadle.access.keyring import Keyring
from treadle.journal.keys_interface import KeyBudget, KeyGrant
from treadle.journal.open_store import open_store
from treadle.runtime import RandomIds, SystemClock
from treadle.server.auth.installation_secret import secret_for

SECRET = "a secret that all of them share, long enough"
BOUND_S = 90.0
AT_ONCE = 60
ASK = msgspec.json.encode({"model": "demo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8})
ENV = {"TREADLE_SECRET": SECRET, "TREADLE_KEYS__REQUIRED": "always"}


@contextmanager
def replicas(kind: str, folder: Path) -> Iterator[tuple[str, list[Server]]]:
    """Three processes on PostgreSQL, or two workers on SQLite."""
    prepare(folder, 0.0)
    if kind == "postgres":
        with servers(folder, store := postgres_server().url(), 3, env=ENV) as some:
            yield store, some
        return
    with servers(folder, f"sqlite:///{folder}/treadle.db", 1, "--workers", "2", env=ENV) as some:
        yield str(folder / "treadle.db"), some


def key(store: str, name: str, tokens: int) -> str:
    """Make a key with this budget."""

    async def make() -> str:
        opened = open_store(store)
        await opened.open()
        try:
            ring = Keyring(opened.keys, secret_for("keys", SECRET.encode()), clock=SystemClock(), ids=RandomIds())
            return (await ring.create(name, KeyGrant(budget=KeyBudget(tokens=tokens))))[1].text
        finally:
            await opened.close()

    return asyncio.run(make())


def ask(server: Server, text: str) -> tuple[int, int]:
    """Ask once with a key; return the status and what was used."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_S)
    try:
        headers = {"content-type": "application/json", "authorization": f"Bearer {text}"}
        connection.request("POST", "/v1/chat/completions", ASK, headers)
        answer = connection.getresponse()
        body = msgspec.json.decode(answer.read())
    finally:
        connection.close()
    if answer.status == 429:
        assert body["error"]["code"] == "budget_exceeded", body
    return answer.status, body.get("usage", {}).get("total_tokens", 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_exactly_the_bound_passes(kind: str, tmp_path: Path) -> None:
    """Strictly one after another, each at another process; and sixty at once, of a key that nobody knows yet."""
    with replicas(kind, tmp_path) as (store, some):
        status, tokens = ask(some[0], key(store, "one", 1))
        assert (status, tokens > 1) == (200, True)
        for trial in range(3):
            text = key(store, f"slow-{trial}", 4 * tokens)
            statuses = [ask(some[n % len(some)], text)[0] for n in range(8)]
            assert statuses == [200] * 4 + [429] * 4
        for trial, passes in enumerate((5, 9)):
            text = key(store, f"quick-{trial}", passes * tokens - 1)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                asked = [pool.submit(ask, some[n % len(some)], text) for n in range(AT_ONCE)]
            statuses = [each.result()[0] for each in asked]
            assert (statuses.count(200), statuses.count(429)) == (passes, AT_ONCE - passes)
