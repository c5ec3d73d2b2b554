"""Streams that are open when their reader stops being welcome: a key that is revoked or expires, a login that ends."""

import pytest

from treadle.config import ServerSection
from treadle.config.access_settings import KeysSection
from treadle.core.errors import StoreError
from treadle.journal.keys_interface import KeyGrant, KeyRow
from treadle.runs import run_service as service
from treadle.server.app import App
from treadle.server.auth import authentication as identity
from unit.server.api.test_login_routes import PAGE, _login
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel
from unit.server.keys import ask, make_key
from unit.server.visit import JSON_TYPE, LOCAL, Visit

ALWAYS = KeysSection(required="always")
LIVE = "/treadle/v1/live"


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "RECHECK_S", 0.01)


def follow(app: App, path: str, key: str) -> Visit:
    """Open a stream with a key."""
    return Visit(app, "GET", path, headers=[LOCAL, ("authorization", f"Bearer {key}")]).begin()


async def test_a_revoked_key_is_told_nothing_more_of_what_changes(open_app: OpenApp) -> None:
    """The stream ends by itself, and others' go on."""
    async with open_app(keys=ALWAYS) as app:
        viewer, other = await make_key(app, "viewer", role="viewer"), await make_key(app, "other", role="viewer")
        streams = [follow(app, LIVE, viewer), follow(app, LIVE, other)]
        for stream in streams:
            await stream.until(b"event: hello")
        await app.service.clients.keyring.revoke("viewer")
        await streams[0].done()
        made = await ask(app, "POST", "/treadle/v1/sessions", key=other, body={"name": "news"})
        await streams[1].until(made.json()["id"].encode())
        assert streams[0].is_complete
        assert made.json()["id"].encode() not in streams[0].body
        streams[1].leave()
        await streams[1].done()


async def test_an_expired_key_is_told_nothing_more_of_a_run(open_app: OpenApp) -> None:
    """Its stream is cut, which nobody takes for the run's end; the run itself goes on."""
    model = HeldModel()
    async with open_app(model, keys=ALWAYS) as app:
        keyring, store = app.service.clients.keyring, app.service.runtime.store
        key = (await keyring.create("short", KeyGrant(), expires_in_s=3_600.0))[1].text
        run = await ask(app, "POST", "/treadle/v1/runs", key=key, body={"input": "hi"})
        stream = follow(app, f"/treadle/v1/runs/{run.json()['id']}/events", key)
        await stream.until(b"text.delta")
        found = keyring._keys.find

        async def expired(lookup: str) -> KeyRow | None:
            row = await found(lookup)
            return None if row is None else KeyRow(**{**_fields(row), "expires_at": 1.0})

        keyring._keys.find = expired  # type: ignore[method-assign]
        keyring._known.clear()
        await stream.done()
        assert not stream.is_complete
        row = await store.find_run(run.json()["id"])
        assert row is not None
        assert row.status == "running"
        model.released.set()


async def test_runs_of_a_revoked_key_are_cancelled(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, within a moment; those of others go on."""
    monkeypatch.setattr(service, "CANCEL_POLL_S", 0.01)
    model = HeldModel()
    async with open_app(model, keys=ALWAYS) as app:
        admin, other = await make_key(app, "admin", role="admin"), await make_key(app, "other")
        runs = [
            (await ask(app, "POST", "/treadle/v1/runs", key=key, body={"input": "hi"})).json()["id"]
            for key in (other, admin)
        ]
        row = await app.service.runtime.store.find_run(runs[0])
        assert row is not None
        handle = app.service.runtime.runs.attach(row)
        assert (await ask(app, "DELETE", "/treadle/v1/keys/other", key=admin)).status == 200
        assert (await handle.wait()).status == "cancelled"
        found = [await app.service.runtime.store.find_run(run_id) for run_id in runs]
        assert [row and row.status for row in found] == ["cancelled", "running"]
        model.released.set()


async def test_who_logs_out_is_told_nothing_more(open_app: OpenApp) -> None:
    """In every tab that the same login had open."""
    async with open_app(server=ServerSection(login="always")) as app:
        cookie = await _login(app)
        stream = Visit(app, "GET", LIVE, headers=[LOCAL, cookie]).begin()
        await stream.until(b"event: hello")
        out = Visit(app, "POST", "/treadle/v1/logout", headers=[LOCAL, JSON_TYPE, PAGE, cookie])
        assert (await out.run()).status == 204
        await stream.done()
        assert stream.is_complete


async def test_a_store_that_is_away_ends_no_stream(open_app: OpenApp) -> None:
    """Nobody was found out to be a stranger: it is looked again."""
    async with open_app(keys=ALWAYS, server=ServerSection(keep_alive_s=0.02)) as app:
        key = await make_key(app, "ada")
        stream = follow(app, LIVE, key)
        await stream.until(b"event: hello")
        keyring, asked = app.service.clients.keyring, []

        async def away(lookup: str) -> KeyRow | None:
            asked.append(lookup)
            raise StoreError("away")

        keyring._keys.find = away  # type: ignore[method-assign]
        keyring._known.clear()
        start = len(stream.body)
        await stream.until_after(start, b"kept_alive")
        for _ in range(3):
            await stream.until_after(len(stream.body), b"kept_alive")
        assert asked
        stream.leave()
        await stream.done()


def _fields(row: KeyRow) -> dict[str, object]:
    return {name: getattr(row, name) for name in KeyRow.__struct_fields__}
