"""MCP clients with keys: each sees and runs the tools of its key, and no session is another's."""

import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from gateway.gateway import Gateway
from treadle import tool
from treadle.access.budgets import used_by
from treadle.access.keyring import Keyring
from treadle.config import ServerSection
from treadle.config.access_settings import KeysSection
from treadle.core.events import RunEnded
from treadle.core.usage import Usage
from treadle.journal.journal_interface import RunRow
from treadle.journal.keys_interface import KeyBudget, KeyGrant
from treadle.providers.fakes.scripted_reply import Reply
from treadle.runtime import Runtime
from treadle.server.auth.installation_secret import secret_for, stored_secret

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def secret() -> str:
    """Tell a secret."""
    return "hush"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Gateway]:
    """A Treadle that serves MCP to whoever has a key."""
    with Gateway(
        lambda _: Reply(text="unused"),
        tmp_path,
        tools=(add, secret),
        server=ServerSection(mcp=True),
        keys=KeysSection(required="always"),
    ) as running:
        yield running


def make(served: Gateway, name: str, grant: KeyGrant) -> str:
    """Make a key."""
    runtime = served.runtime
    pepper = secret_for("keys", stored_secret(runtime.settings))
    ring = Keyring(runtime.store.keys, pepper, clock=runtime.clock, ids=runtime.ids)
    return served.ask(ring.create(name, grant))[1].text


@asynccontextmanager
async def connected(served: Gateway, key: str, mode: str) -> AsyncIterator[Client]:
    """Connect with a key."""
    headers = {"authorization": f"Bearer {key}"}
    async with create_mcp_http_client(headers=headers) as web:
        transport = streamable_http_client(f"{served.origin}/mcp", http_client=web)
        client = Client(transport, mode=mode)  # type: ignore[arg-type]
        async with client:
            yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_has_the_tools_of_its_key(served: Gateway, mode: str) -> None:
    """Listed, run, and charged to it; one that it may not use is as if there were none."""
    key = make(served, "adder", KeyGrant(apis=("mcp",), tools=("add",)))
    async with connected(served, key, mode) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["add"]
        assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error
        with pytest.raises(MCPError, match="There is no tool 'secret'"):
            await client.call_tool("secret")
    (row,) = served.ask(served.runtime.store.list_runs())
    assert row.key_id.startswith("key_")


async def use_up(runtime: Runtime, key_id: str) -> None:
    """Let a run of the key end that used some tokens."""
    now, usage = runtime.clock.now(), Usage(input_tokens=5)
    row = RunRow(id="run_1", response_id="resp_1", conversation_id="c", protocol="chat", model="m", created_at=now)
    journal = await runtime.store.start_run(msgspec.structs.replace(row, key_id=key_id), [], owner="test", lease_s=60.0)
    await journal.finish([], RunEnded(status="completed", usage=usage, ended_at=now))
    await runtime.accounts.ledger.settle({row.id: (used_by(usage, None), now)})


async def test_a_budget_holds_for_calls_too(served: Gateway) -> None:
    """What is used up is used up, wherever it is asked for."""
    key = make(served, "poor", KeyGrant(budget=KeyBudget(tokens=1)))
    (row,) = served.ask(served.runtime.store.keys.page())
    served.ask(use_up(served.runtime, row.id))
    async with connected(served, key, "auto") as client:
        with pytest.raises(MCPError, match="used up"):
            await client.call_tool("add", {"a": 1, "b": 2})


def test_a_session_is_its_keys_alone(served: Gateway) -> None:
    """Whoever learns its id and has another key finds nothing there; without a key nobody begins one."""
    mine, other = make(served, "mine", KeyGrant()), make(served, "other", KeyGrant())
    assert _post(served, INITIALIZE, {})[0] == 401
    status, session = _post(served, INITIALIZE, {"authorization": f"Bearer {mine}"})
    assert (status, bool(session)) == (200, True)
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    inside = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    assert _post(served, listing, {**inside, "authorization": f"Bearer {other}"})[0] == 404
    assert _post(served, listing, {**inside, "authorization": f"Bearer {mine}"})[0] == 200


def _post(served: Gateway, body: object, headers: dict[str, str]) -> tuple[int, str]:
    """Post to /mcp; return the status and the session that was begun."""
    address = urlsplit(served.origin)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    accepted = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    try:
        connection.request("POST", "/mcp", json.dumps(body), accepted | headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers.get("mcp-session-id", "")
    finally:
        connection.close()
