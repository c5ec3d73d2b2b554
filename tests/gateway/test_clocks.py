"""Replicas whose clocks differ by an hour: nothing is due for one that is not due for the other."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from postgres import postgres_server
from treadle import tool
from treadle.access.keyring import Keyring
from treadle.config import Settings, StoreSection
from treadle.core.errors import Unauthorised
from treadle.core.items import text_message
from treadle.core.request import Request
from treadle.journal.keys_interface import KeyGrant
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.runs.approvals.decisions import Answer
from treadle.runtime import Parts, RandomIds, Runtime, SystemClock
from treadle.telemetry.prometheus import write_text

HOUR_S = 3_600.0
PEPPER = b"a pepper that is long enough"


class Wrong(SystemClock):
    """A machine's clock that is off."""

    def __init__(self, wrong_s: float) -> None:
        self._wrong_s = wrong_s

    def now(self) -> float:
        return SystemClock.now() + self._wrong_s


@tool(effect="write", approval="always")
def wipe(path: str) -> str:
    """Wipe something."""
    return f"wiped {path}"


SCRIPT = Script(turns=(ScriptTurn(calls=(ReplyCall(name="wipe", args={"path": "x"}),)),) * 2)


@asynccontextmanager
async def pair(wrong_s: float) -> AsyncIterator[tuple[Runtime, Runtime]]:
    """Two replicas on one database, the second with a wrong clock."""
    settings = Settings(store=StoreSection(url=postgres_server().url()))
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(
                Runtime(
                    settings,
                    tools=[wipe],
                    model=ScriptedModel(SCRIPT, ids=RandomIds()),
                    parts=Parts(env={}, clock=clock),
                )
            )
            for clock in (SystemClock(), Wrong(wrong_s))
        ]
        yield opened[0], opened[1]


@pytest.mark.parametrize("wrong_s", [HOUR_S, -HOUR_S])
async def test_an_approval_stands_as_long_for_every_replica(wrong_s: float) -> None:
    """A mere look does not expire it, and whoever is asked last decides."""
    async with pair(wrong_s) as (right, wrong):
        for asking, deciding in ((right, wrong), (wrong, right)):
            request = Request(protocol="responses", model="", items=(text_message("user", "go"),))
            ended = await (await asking.runs.start(request)).wait()
            assert ended.status == "requires_action"
            [row] = await deciding.approvals.page(status="pending")
            assert (await deciding.approvals.find(row.id)).status == "pending"
            decided = await deciding.approvals.decide(row.id, Answer(approve=True, by="ann"))
            assert decided.status == "approved"
            assert abs(decided.decision.at - row.created_at) < HOUR_S / 2


@pytest.mark.parametrize("wrong_s", [HOUR_S, -HOUR_S])
async def test_a_key_expires_for_every_replica_at_the_same_time(wrong_s: float) -> None:
    """One that lives half an hour is good everywhere; one whose time is over nowhere."""
    async with pair(wrong_s) as both:
        rings = [Keyring(each.store.keys, PEPPER, clock=each.clock, ids=each.ids) for each in both]
        for n, maker in enumerate(rings):
            _, token = await maker.create(f"half-{n}", KeyGrant(), expires_in_s=HOUR_S / 2)
            made, short = await maker.create(f"short-{n}", KeyGrant(), expires_in_s=1e-3)
            while both[0].clock.now() < made.expires_at or both[1].clock.now() < made.expires_at:
                await both[0].clock.sleep(0.001)
            for ring in rings:
                assert (await ring.check(token.text)).name == f"half-{n}"
                with pytest.raises(Unauthorised, match="expired"):
                    await ring.check(short.text)


@pytest.mark.parametrize("wrong_s", [HOUR_S, -HOUR_S])
async def test_the_skew_is_a_number_that_is_watched(wrong_s: float) -> None:
    """Of each replica its own."""
    async with pair(wrong_s) as (right, wrong):
        assert abs(right.clock.skew_s) < 60.0
        assert abs(wrong.clock.skew_s - wrong_s) < 60.0
        [line] = [
            line
            for line in write_text(wrong.metrics.registry.collect()).decode().splitlines()
            if line.startswith("treadle_clock_skew_seconds ")
        ]
        assert abs(float(line.split()[1]) - wrong_s) < 60.0
