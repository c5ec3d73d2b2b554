"""Whether a connection keeps what is set on it: a pooler may give each transaction another one.

Listening, settings and prepared statements belong to a session. Where a pooler gives it away between two transactions
they are lost, sometimes, and nothing says so; that is found out before anything is written.
"""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from treadle.core.errors import StoreError
from treadle.journal.postgres.connection import POOLED, POOLED_HINT, UNREACHABLE, connect
from treadle.journal.store_url import PostgresAddress

PEERS_MAX = 6
"""How many other connections are tried: a pooler that goes round gives away the one that was free longest."""
PEER_S = 2.0
STATEMENTS_ONLY = "statement pooling"
"""What pgbouncer says as it hangs up on who begins a transaction where it allows none."""


async def check_session(connection: Any, address: PostgresAddress) -> bool:
    """Refuse a pooler that shares connections between transactions; tell whether there is a pooler at all.

    Raises: StoreError; OSError, TimeoutError and asyncpg's errors as the driver does.
    """
    try:
        async with connection.transaction():
            pid = await connection.fetchval("SELECT pg_backend_pid()")
        # PostgreSQL itself says the same number when a connection is made. A pooler makes one up.
        if pid == connection.get_server_pid():
            return False
        if await _is_given_away(pid, address):
            raise _pooled(address)
    except asyncpg.DuplicatePreparedStatementError:
        # Those of another client are on what it gave us.
        raise _pooled(address) from None
    except asyncpg.PostgresConnectionError as error:
        if STATEMENTS_ONLY in str(error):
            raise _pooled(address) from None
        raise
    return True


async def _is_given_away(pid: int, address: PostgresAddress) -> bool:
    """Tell whether others get the server's process that our session, which does nothing just now, was on."""
    peers: list[Any] = []
    try:
        for _ in range(PEERS_MAX):
            # One that has to wait for a connection would have got ours.
            with suppress(TimeoutError):
                async with asyncio.timeout(PEER_S):
                    peer = await connect(address)
                    peers.append(peer)
                    await peer.execute("BEGIN")
                    if await peer.fetchval("SELECT pg_backend_pid()") == pid:
                        return True
                    continue
            return False
        return False
    finally:
        for peer in peers:
            with suppress(*UNREACHABLE):
                peer.terminate()


def _pooled(address: PostgresAddress) -> StoreError:
    return StoreError(f"the store {address.shown}: {POOLED}", code="store_pooled", hint=POOLED_HINT)
