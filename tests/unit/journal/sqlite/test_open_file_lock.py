"""Being alone at a database: only then are the leases of others known to be those of the dead."""

from pathlib import Path

import pytest

from store.sample import OTHER, OWNER, SetClock, run_row, said
from treadle.journal.sqlite.open_file_lock import SUFFIX, OpenFileLock
from treadle.journal.sqlite.store import SqliteStore


async def opened(folder: Path) -> SqliteStore:
    """Open a store whose clock stands still, so that no lease ends by itself."""
    store = SqliteStore(str(folder / "journal.db"), clock=SetClock())
    await store.open()
    return store


async def test_a_process_that_is_alone_need_not_wait_for_leases(tmp_path: Path):
    """After the only process died, the next one goes on with its runs at once."""
    first = await opened(tmp_path)
    await first.start_run(run_row(), [said("go")], owner=OWNER, lease_s=60.0)
    await first.close()
    second = await opened(tmp_path)
    [(row, journal)] = await second.claim_abandoned(OTHER, 60.0, 10)
    assert (row.id, journal.epoch) == ("run_1", 2)
    await second.close()


async def test_a_living_process_keeps_its_leases(tmp_path: Path):
    """Whoever comes while another has the file open finds the other's runs taken, also when a third one leaves."""
    first = await opened(tmp_path)
    journal = await first.start_run(run_row(), [said("go")], owner=OWNER, lease_s=60.0)
    for _ in range(2):
        other = await opened(tmp_path)
        assert await other.claim_abandoned(OTHER, 60.0, 10) == []
        await other.close()
    assert await journal.append([said("more")]) == 2
    await first.close()


def test_a_failure_while_alone_leaves_no_mark(tmp_path: Path):
    """The next one is alone again."""
    calls: list[str] = []

    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        OpenFileLock(str(tmp_path / "db"), fail)
    OpenFileLock(str(tmp_path / "db"), lambda: calls.append("alone")).close()
    assert calls == ["alone"]


def test_the_last_one_takes_the_file_away(tmp_path: Path):
    """It is readable by its owner only, stays while anybody is there, and is gone afterwards."""
    file = tmp_path / f"db{SUFFIX}"
    first, second = (OpenFileLock(str(tmp_path / "db"), lambda: None) for _ in range(2))
    assert file.stat().st_mode & 0o777 == 0o600
    first.close()
    assert file.exists()
    second.close()
    second.close()
    assert not file.exists()


async def test_a_link_to_the_database_is_the_same_database(tmp_path: Path):
    """Whoever comes by another name is not alone, and finds the runs of the first taken."""
    first = await opened(tmp_path)
    await first.start_run(run_row(), [said("go")], owner=OWNER, lease_s=60.0)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "journal.db").symlink_to(tmp_path / "journal.db")
    other = await opened(tmp_path / "elsewhere")
    assert await other.claim_abandoned(OTHER, 60.0, 10) == []
    await other.close()
    await first.close()
