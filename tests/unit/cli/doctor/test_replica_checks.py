"""Whether a process would be like the others of its journal: its secret too, wherever that is kept."""

import asyncio
import os
from pathlib import Path

import pytest

from treadle.access.keyring import fingerprint_of
from treadle.cli.doctor.replica_checks import NO_SECRET, check_replicas
from treadle.config import Settings, StoreSection
from treadle.config.access_settings import KeysSection
from treadle.journal.open_store import open_store
from treadle.runtime.replica_comparison import OTHER_KEYS
from treadle.server.auth.installation_secret import FILE, secret_for, stored_secret

GIVEN = {"TREADLE_SECRET": "r" * 40}
OTHER = {"TREADLE_SECRET": "w" * 40}


async def _settings(folder: Path, env: dict[str, str]) -> Settings:
    """Return settings of a journal whose keys were made under the secret of that environment, or of a file."""
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder / 't.db'}"), keys=KeysSection(required="always"))
    store = open_store(str(folder / "t.db"))
    await store.open()
    await store.replicas.note_secret(fingerprint_of(secret_for("keys", stored_secret(settings, env))))
    await store.close()
    return settings


def _arrange(file: Path, made: dict[str, str], has: str) -> dict[str, str]:
    """Leave the secret as it was, put another one in its place, or take it away; return the environment for that."""
    if has == "none":
        file.unlink(missing_ok=True)
        return {}
    if has == "another" and not made:
        file.write_bytes(bytes(64))
    return OTHER if has == "another" and made else made


@pytest.mark.parametrize("made", [GIVEN, {}], ids=["variable", "file"])
@pytest.mark.parametrize("has", ["the same", "another", "none"])
async def test_a_secret_is_compared_wherever_it_is_kept(tmp_path: Path, made: dict[str, str], has: str) -> None:
    """That of the environment and that of the file beside the journal; one that is missing is not made by looking."""
    settings = await _settings(tmp_path, made)
    env = _arrange(tmp_path / FILE, made, has)
    there = os.listdir(tmp_path)
    found = await asyncio.to_thread(check_replicas, settings, env)
    expected = {"the same": [], "another": [("broken", OTHER_KEYS)], "none": [("broken", NO_SECRET)]}
    assert [(each.state, each.detail) for each in found] == expected[has]
    assert (FILE in os.listdir(tmp_path)) == (FILE in there)


async def test_a_secret_that_nobody_needs_is_not_looked_for(tmp_path: Path) -> None:
    """Without keys and logins there is nothing that another secret could refuse."""
    settings = await _settings(tmp_path, {})
    (tmp_path / FILE).unlink()
    bare = Settings(store=settings.store, keys=KeysSection(required="never"))
    assert check_replicas(bare, {}) == []
