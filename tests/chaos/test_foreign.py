"""Other sessions of PostgreSQL hold a server up under load: what was answered is there, and it goes on afterwards."""

import asyncio
import time
from pathlib import Path

from chaos.server import prepare, servers
from chaos.stores import rows, violations
from chaos.test_postgres import heal
from crash.test_foreign import Load
from postgres import PostgresServer
from treadle.core.events import ENDED
from treadle.journal.postgres.connection import connect
from treadle.journal.store_url import PostgresAddress

TABLES = ("runs", "leases", "events")
HELD_S = 3.0
ENDED_S = 60.0


async def _hold_up(store: str) -> None:
    """Lock each table, write it anew, and leave a transaction idle beside that."""
    address = PostgresAddress(store)
    idle, other = await connect(address), await connect(address)
    reading = idle.transaction(isolation="repeatable_read")
    await reading.start()
    await idle.fetch("SELECT count(*) FROM schema_migrations")
    for table in TABLES:
        async with other.transaction():
            await other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(HELD_S)
        await other.execute(f"VACUUM FULL {table}")
    await reading.rollback()
    await idle.close()
    await other.close()


def test_other_sessions_cost_time_and_nothing_else(tmp_path: Path) -> None:
    """LOCK TABLE, VACUUM FULL and an idle transaction during load, then SIGKILL: refused in words, or kept."""
    prepare(tmp_path, 0.0)
    database = PostgresServer()
    database.start()
    try:
        store = database.url("held_up")
        with servers(tmp_path, store, 1) as [server]:
            load = Load(server)
            with load.going_on():
                asyncio.run(_hold_up(store))
                heal(server)
            server.kill_all()
        assert {status for status, _ in load.refused} <= {500, 502, 503}
        with servers(tmp_path, store, 1):
            deadline = time.monotonic() + ENDED_S
            while any(row.status not in ENDED for row in rows(store)) and time.monotonic() < deadline:
                time.sleep(0.2)
        kept = {row.response_id: row.status for row in rows(store)}
        assert [each for each in load.answered if kept.get(each) != "completed"] == []
        assert len(load.answered) > 0
        assert violations(store, tmp_path) == []
    finally:
        database.remove()
