"""Asks the database all the time whether it is well, over a connection of its own, so that no queue delays the answer.

That it answers does not mean that it can write. It may have become a standby, or its disk may be full: then a sort that
does not fit into memory fails too, and leaves nothing behind where it does not.
"""

import asyncio
import time
from typing import Any

import asyncpg

from treadle.journal.postgres.connection import UNREACHABLE, connect, store_error, unavailable
from treadle.journal.store_url import PostgresAddress

PROBE_S = 2.0
SPACE_EVERY_S = 5.0
"""How often room on the disk is looked for while there is some."""

_MEMORY = "SET work_mem = '64kB'"
_READ_ONLY = "SELECT current_setting('transaction_read_only') = 'on'"
_SPACE = """
WITH space AS MATERIALIZED (SELECT repeat(md5(n::text), 32) FROM generate_series(1, 512) AS n)
SELECT count(*) FROM space
"""


class Probe:
    """Belongs to one event loop; ask from one task alone."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._connection: Any = None
        self._had_space_at = float("-inf")

    async def check(self) -> None:
        """Check that the database answers, and that what is written now would be kept.

        Raises: StoreError.
        """
        try:
            async with asyncio.timeout(PROBE_S):
                await self._ask()
        except (ValueError, asyncpg.PostgresError, *UNREACHABLE) as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise unavailable(self._address, f"it did not answer within {PROBE_S:g} s") from None
            raise store_error(error, self._address) from None
        except BaseException:
            self.close()
            raise

    async def _ask(self) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._address, is_durable=False)
            await self._connection.execute(_MEMORY)
        if await self._connection.fetchval(_READ_ONLY):
            raise asyncpg.ReadOnlySQLTransactionError("it takes no writes")
        now = time.monotonic()
        if now - self._had_space_at >= SPACE_EVERY_S:
            self._had_space_at = float("-inf")
            await self._connection.fetchval(_SPACE)
            self._had_space_at = now

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
