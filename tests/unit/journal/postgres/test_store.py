"""The PostgreSQL store as an object: opening, closing, passwords."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from postgres import SECRET_USER, postgres_server
from treadle.cli.commands import config_command
from treadle.cli.commands.serve_command import greeting
from treadle.cli.doctor.check_list import check_store
from treadle.config import Settings, StoreSection, read_settings
from treadle.core.errors import StoreError
from treadle.core.events import RunEnded
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage
from treadle.journal.journal_interface import Chunk, RunJournal, RunRow, Store
from treadle.journal.postgres.connection import PostgresPool, connect
from treadle.journal.postgres.run_writer import PostgresRunJournal
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.store_url import PostgresAddress
from treadle.runtime import Parts, Runtime

ROW = RunRow(id="run_1", response_id="resp_1", conversation_id="conv_1", protocol="chat", model="demo", created_at=1.0)
NOTE = Entry(kind="note", at=1.0, name="n", call_id="c", item_id="i", content="x", data=msgspec.Raw(b"{}"))
CHUNK = Chunk(first=1, count=1, data=b"[1]")
ENDED = RunEnded(status="completed", usage=Usage(input_tokens=1), ended_at=2.0)
OLD, NEW = "old-pass word@/?#", "new-pass:word%"


@pytest.fixture
async def guarded() -> AsyncIterator[Any]:
    """A role with a password that the test may change, and a connection to do so."""
    admin = await connect(PostgresAddress(postgres_server().url("s0")))
    if not await admin.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", SECRET_USER):
        await admin.execute(f"CREATE ROLE {SECRET_USER}")
    await admin.execute(f"ALTER ROLE {SECRET_USER} SUPERUSER LOGIN PASSWORD '{OLD}'")
    yield admin
    await admin.execute(f"ALTER ROLE {SECRET_USER} NOLOGIN")
    await admin.close()


def url(**options: str) -> str:
    """An address in an empty schema."""
    return postgres_server().url(**options)


def test_it_fits_the_interface() -> None:
    """The classes have the shape of the protocols; the type checker says the same."""
    store: Store = PostgresStore(PostgresAddress("postgresql://db.example/x"))
    journal: type[RunJournal] = PostgresRunJournal
    assert [name for name in dir(Store) if not name.startswith("_") and not hasattr(store, name)] == []
    assert [name for name in dir(RunJournal) if not name.startswith("_") and not hasattr(journal, name)] == []


async def test_a_store_that_is_not_open_says_so() -> None:
    """Before open and after close, reading, writing and waiting fail; closing twice is fine."""
    store = PostgresStore(PostgresAddress(url()))
    for is_over in (False, True):
        works = (
            store.ping(),
            store.list_runs(),
            store.start_run(ROW, [], owner="o", lease_s=1.0),
            store.wait_change("run_1", 9.0),
        )
        for work in works:
            with pytest.raises(StoreError, match="is not open") as caught:
                await work
            assert caught.value.info.code == "store_closed"
        if not is_over:
            await store.open()
            await store.ping()
        await store.close()
    await store.close()


async def test_a_journal_outlives_its_store_only_as_an_error() -> None:
    """Writing after the store was closed is refused and does not hang."""
    store = PostgresStore(PostgresAddress(url()))
    await store.open()
    journal = await store.start_run(ROW, [], owner="o", lease_s=1.0)
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        await journal.append([Entry(kind="note", at=1.0)])


async def test_close_finishes_what_was_asked_for_and_wakes_who_waits() -> None:
    """Writes in flight when the store is closed are committed."""
    address = PostgresAddress(url())
    store = PostgresStore(address)
    await store.open()
    journal = await store.start_run(ROW, [], owner="o", lease_s=1.0)
    writes = [journal.append([Entry(kind="note", at=float(n))]) for n in range(100)]
    waiting = asyncio.create_task(store.wait_change("run_2", 60.0))
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writes) == list(range(1, 101))
    await asyncio.wait_for(waiting, 30.0)
    again = PostgresStore(address)
    await again.open()
    assert len(await again.entries("run_1")) == 100
    await again.close()


async def test_nothing_goes_alone_that_can_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are begun, continued, written to, told and ended by groups, also by a group of one."""

    async def alone(*_: object, **__: object) -> None:
        pytest.fail("something went alone")

    store = PostgresStore(PostgresAddress(url()))
    await store.open()
    with monkeypatch.context() as patched:
        patched.setattr(PostgresPool, "certain", alone)
        first = await store.start_run(ROW, [NOTE], owner="o", lease_s=9.0)
        rows = [msgspec.structs.replace(ROW, id=f"run_b{n}", response_id=f"resp_b{n}") for n in range(5)]
        rows = [msgspec.structs.replace(row, previous_id="run_1", request=msgspec.Raw(b"{}")) for row in rows]
        more = await asyncio.gather(*(store.start_run(row, [NOTE], owner="o", lease_s=9.0) for row in rows))
        assert await asyncio.gather(*(each.append([NOTE, NOTE]) for each in more)) == [3] * 5
        await asyncio.gather(*(each.write_chunk(CHUNK, keep_from=1) for each in more))
        assert await asyncio.gather(*(each.append([NOTE, NOTE]) for each in [first])) == [3]
        await first.write_chunk(CHUNK, keep_from=1)
        ends = [each.finish([NOTE], ENDED) for each in more[1:]]
        assert await asyncio.gather(more[0].append([NOTE]), *ends) == [4] * 5
        assert await first.finish([NOTE], ENDED) == 4
    assert [row.status for row in await store.list_runs()] == ["completed"] * 4 + ["running", "completed"]
    await store.close()


async def test_a_small_pool_serves_many() -> None:
    """Two connections are enough for a hundred requests at once; no more are made."""
    address = PostgresAddress(url() + "&pool_size=2")
    store = PostgresStore(address)
    await store.open()
    rows = [msgspec.structs.replace(ROW, id=f"run_{n}", response_id=f"resp_{n}") for n in range(100)]
    await asyncio.gather(*(store.start_run(row, [], owner="o", lease_s=1.0) for row in rows))
    admin = await connect(address)
    sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%INSERT INTO runs%' AND pid <> pg_backend_pid()"
    assert 1 <= await admin.fetchval(sql) <= 2
    await admin.close()
    await store.close()


async def test_a_password_of_the_environment_opens_the_store(guarded: Any) -> None:
    """Whatever signs it has; a wrong one is refused by name of the variable, and neither is shown."""
    place = url(user=SECRET_USER)
    store = PostgresStore(PostgresAddress(place, password=OLD))
    await store.open()
    await store.close()
    await guarded.execute(f"ALTER ROLE {SECRET_USER} PASSWORD '{NEW}'")
    with pytest.raises(StoreError) as caught:
        await PostgresStore(PostgresAddress(place, password=OLD)).open()
    error = caught.value
    assert (error.info.code, "PGPASSWORD" in str(error.hint)) == ("store_refused", True)
    assert OLD not in f"{error.message} {error.hint} {error.info}"
    store = PostgresStore(PostgresAddress(url(user=SECRET_USER, password=NEW)))
    await store.open()
    assert NEW not in store.path
    await store.close()


async def test_a_password_that_was_changed_meanwhile_is_not_shown(guarded: Any) -> None:
    """A store that is open loses its connections and may not make new ones: it says so without the word."""
    store = PostgresStore(PostgresAddress(url(user=SECRET_USER), password=OLD))
    await store.open()
    await guarded.execute(f"ALTER ROLE {SECRET_USER} PASSWORD '{NEW}'")
    sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"
    await guarded.execute(sql, SECRET_USER)
    with pytest.raises(StoreError) as caught:
        await store.list_runs()
    assert caught.value.info.code == "store_refused"
    assert OLD not in str(caught.value.info)
    await store.close()


def settings(place: str, **fields: Any) -> Settings:
    """Settings with a store at that place."""
    return Settings(store=StoreSection(url=place, **fields))


def test_doctor_says_what_answers_and_what_does_not(guarded: Any) -> None:
    """Version and schema, or the reason; a password is never in it."""
    env = {"DB_WORD": OLD}
    place = url(user=SECRET_USER)
    found = check_store(settings(place, password_env="DB_WORD"), env)
    assert (found.state, "PostgreSQL 1" in found.detail) == ("ok", True)
    refused = check_store(settings(place), {"PGPASSWORD": "wrong-word"})
    away = check_store(settings(f"postgresql://me:{NEW}@127.0.0.1:1/x"), {})
    offline = check_store(settings(f"postgresql://me:{NEW}@127.0.0.1:1/x"), {}, is_offline=True)
    assert [check.state for check in (refused, away, offline)] == ["broken", "broken", "note"]
    told = str([found, refused, away, offline])
    assert not any(word in told for word in (OLD, NEW, "wrong-word"))


async def test_a_runtime_runs_on_it_and_shows_no_password(guarded: Any) -> None:
    """The library with store.url and PGPASSWORD: a run is kept, and greeting, config and log hide the word."""
    place = url(user=SECRET_USER, password=OLD)
    loaded = read_settings(env={}, overrides={"store.url": place})
    parts = Parts(env={}, demo_delay_s=0.0)
    async with Runtime(loaded.settings, parts=parts) as runtime:
        events = [event async for event in runtime.run("hello")]
        assert events
        assert [row.status for row in await runtime.store.list_runs()] == ["completed"]
        told = "\n".join(greeting(runtime, "http://127.0.0.1:1"))
        record = logging.makeLogRecord({"msg": f"cannot reach {OLD}"})
        told += runtime.redactor.text(record.getMessage())
    told += str([row for row in config_command.list_shown(loaded) if row.key == "store.url"])
    assert "***" in told
    assert OLD not in told
    assert place not in told
