"""The cache by itself: which requests it serves, and that a store in trouble only means that the model is asked."""

from typing import Any

import msgspec
import pytest

from treadle.core.errors import StoreError
from treadle.core.journal_entries import Entry
from treadle.core.request import Options, Request, Surface
from treadle.core.tool_definitions import Offer, ToolPolicy, ToolSpec
from treadle.journal.sqlite.store import SqliteStore
from treadle.runs.response_cache import CacheRules, ResponseCache, is_repeatable
from unit.engine.fakes import FakeClock, FakeModel, say
from unit.runs.test_run_service import asking, events_of, running

READS = Offer(spec=ToolSpec(name="reads"), side="server", policy=ToolPolicy(effect="read"))
WRITES = Offer(spec=ToolSpec(name="writes"), side="server", policy=ToolPolicy(effect="write"))
THEIRS = Offer(spec=ToolSpec(name="theirs"), side="client")
HOSTED = Options(extra={"tools": msgspec.Raw(b'[{"type":"web_search"}]')})


@pytest.mark.parametrize(
    ("fields", "offers", "is_served"),
    [
        ({}, (), True),
        ({}, (READS,), True),
        ({}, (READS, WRITES), False),
        ({}, (READS, THEIRS), False),
        ({"is_fresh": True}, (), False),
        ({"strict_fidelity": True}, (), False),
        ({"surface": Surface(choices=2)}, (), False),
        ({"options": HOSTED}, (), False),
        ({"store": False}, (), True),
    ],
)
def test_only_what_can_have_no_effect_is_served(fields: Any, offers: tuple[Offer, ...], is_served: bool) -> None:
    """Every tool that is offered counts, called or not."""
    request = Request(protocol="chat", model="m", **fields)
    assert is_repeatable(request, {offer.spec.name: offer for offer in offers}) is is_served


class LostStore(SqliteStore):
    """A store that cannot be read."""

    async def list_runs(self, **_: Any) -> Any:
        raise StoreError("the disk is gone")


async def test_who_cannot_look_asks_the_model() -> None:
    """A cache in trouble is no cache."""
    answers = ResponseCache(LostStore(":memory:"), FakeClock(), CacheRules())
    assert await answers.find("f" * 64, "") is None


class OddStore(SqliteStore):
    """A store whose journals were written by somebody else."""

    async def entries(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        told = await super().entries(run_id, after=after, limit=limit)
        odd = msgspec.Raw(b'{"ending":"unheard of"}')
        return [msgspec.structs.replace(each, data=odd) if each.kind == "reply" else each for each in told]


async def test_a_journal_that_cannot_be_read_has_no_answer() -> None:
    """It is passed over, not guessed at."""
    async with running(FakeModel(say("one"))) as (runs, store):
        told = await events_of(runs, asking())
        [plan] = [each for each in await store.entries(told[0].event.run_id) if each.kind == "plan"]
        fingerprint = msgspec.json.decode(plan.data)["fingerprint"]
        assert await ResponseCache(store, FakeClock(), CacheRules()).find(fingerprint, "") is not None
        store.__class__ = OddStore
        assert await ResponseCache(store, FakeClock(), CacheRules()).find(fingerprint, "") is None


async def test_without_the_setting_every_model_call_is_made() -> None:
    """The cache is off unless it is asked for."""
    model = FakeModel(say("one"), say("two"))
    async with running(model) as (runs, _):
        for _ in range(2):
            handle = await runs.start(asking())
            await handle.wait()
            assert handle.cache == ""
    assert len(model.plans) == 2
