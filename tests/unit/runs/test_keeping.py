"""How long runs are kept: for ever, for so many days, or an hour where nobody asked to keep them."""

from pathlib import Path

import pytest

from treadle.config import Settings, StoreSection
from treadle.runtime import Parts, Runtime

DAY_S = 86_400.0


async def times(folder: Path, **section: object) -> tuple[float | None, float]:
    """Make a run and return when it may be forgotten, counted from its beginning, and what the store then forgets."""
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder}/j.db", **section))
    async with Runtime(settings, parts=Parts(env={}, demo_delay_s=0.0)) as runtime:
        async for _ in runtime.run("hello"):
            pass
        [row] = await runtime.store.list_runs()
        forgotten = await runtime.store.expire(row.created_at + 3 * DAY_S)
        return None if row.expires_at is None else row.expires_at - row.created_at, forgotten


@pytest.mark.parametrize(
    ("section", "kept_s", "forgotten"),
    [({}, None, 0), ({"keep_days": 2.0}, 2 * DAY_S, 1), ({"keep_days": 30.0}, 30 * DAY_S, 0)],
)
async def test_a_run_is_kept_as_long_as_the_settings_say(
    section: dict[str, float], kept_s: float | None, forgotten: int, tmp_path: Path
) -> None:
    """Without a word for ever; with `journal.keep_days` until then, when the store forgets it by itself."""
    assert await times(tmp_path, **section) == (kept_s, forgotten)
