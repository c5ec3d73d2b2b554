"""What a revoked key leaves behind: every run of it that goes on is asked to end, nobody else's."""

from pathlib import Path

import pytest

from store.sample import run_row
from treadle.access import key_revocation as revocation
from treadle.access.key_revocation import stop_runs, why_cancelled
from treadle.core.events import RunEnded
from treadle.core.run_endings import REVOKED
from treadle.journal.journal_interface import Store
from treadle.journal.keys_interface import KeyGrant, KeyRow
from treadle.journal.open_store import open_store


@pytest.fixture
async def store(tmp_path: Path):
    """A journal of the test's own."""
    opened = open_store(str(tmp_path / "t.db"), clock=lambda: 0.0)
    await opened.open()
    yield opened
    await opened.close()


async def begun(store: Store, *names: str, key_id: str, owner: str = "me") -> list[str]:
    """Begin runs of a key and return their ids."""
    rows = [run_row(name, key_id=key_id) for name in names]
    for row in rows:
        await store.start_run(row, [], owner=owner, lease_s=60)
    return [row.id for row in rows]


async def test_every_run_of_the_key_is_asked_to_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many, wherever they are driven; asked again, it is the same."""
    monkeypatch.setattr(revocation, "PAGE", 2)
    mine = await begun(store, "1", "2", "3", key_id="key_a")
    far = await begun(store, "4", "5", key_id="key_a", owner="other")
    await begun(store, "6", key_id="key_b")
    assert [await stop_runs(store, "key_a") for _ in range(2)] == [5, 5]
    assert sorted(await store.cancel_requests("me")) == mine
    assert sorted(await store.cancel_requests("other")) == far


async def test_runs_of_a_revoked_key_say_why_they_were_cancelled(store: Store) -> None:
    """Those of another key, and of nobody, were cancelled by somebody."""
    for name in ("a", "b"):
        await store.keys.add(
            KeyRow(id=f"key_{name}", name=name, lookup=name, mac=b"x", created_at=0.0, grant=KeyGrant())
        )
    await store.keys.revoke("a", 1.0)
    rows = [run_row("1", key_id="key_a"), run_row("2", key_id="key_b"), run_row("3", key_id="")]
    assert await why_cancelled(store, rows) == {"run_1": REVOKED, "run_2": None, "run_3": None}
    assert await why_cancelled(store, []) == {}


async def test_what_has_ended_is_left_alone(store: Store) -> None:
    """Nothing is asked of it, and it is not counted."""
    journal = await store.start_run(run_row("1", key_id="key_a"), [], owner="me", lease_s=60)
    await journal.finish([], RunEnded(status="completed"))
    assert await stop_runs(store, "key_a") == 0
    assert await stop_runs(store, "key_none") == 0
