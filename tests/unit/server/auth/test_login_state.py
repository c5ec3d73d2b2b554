"""Logins that processes share: a link is good once in all of them, and a logout is one everywhere."""

from typing import cast

import pytest

from treadle.journal.journal_interface import Store
from treadle.server.auth.login_state import REFRESH_S, SharedLogins
from treadle.server.auth.page_access import PageGate
from treadle.server.auth.signed_tickets import Tickets


class Shelf:
    """What a journal keeps of tickets; `meanwhile` is done while one of them is being spent."""

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.meanwhile: list[SharedLogins] = []

    @property
    def tickets(self) -> "Shelf":
        return self

    async def spend(self, ticket_id: str, expires_at: float, now: float) -> bool:
        is_first = ticket_id not in self.kept
        self.kept.add(ticket_id)
        for each in self.meanwhile:
            await each.refresh()
        return is_first

    async def spent(self, now: float) -> list[str]:
        return sorted(self.kept)


class HandClock:
    """Time that is set."""

    time = 100.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def shelf() -> Shelf:
    """An empty one."""
    return Shelf()


@pytest.fixture
def clock() -> HandClock:
    """One that all processes share."""
    return HandClock()


def process(shelf: Shelf, clock: HandClock) -> tuple[SharedLogins, PageGate]:
    """Return what one of several processes knows."""
    gate = PageGate(Tickets(b"s" * 32, 0.0), needs_login=True)
    return SharedLogins(gate, cast("Store", shelf), clock), gate


def ticket(gate: PageGate, clock: HandClock) -> str:
    """Return the ticket of a new link."""
    return gate.link_path("ada", "admin", clock.now()).partition("#")[2]


async def test_a_link_is_good_once_in_all_processes(shelf: Shelf, clock: HandClock) -> None:
    """Whichever of them takes it first."""
    (here, gate), (there, _) = process(shelf, clock), process(shelf, clock)
    link = ticket(gate, clock)
    assert await there.redeem(link) is not None
    assert await here.redeem(link) is None


async def test_who_looks_while_a_link_is_taken_does_not_take_it_away(shelf: Shelf, clock: HandClock) -> None:
    """Another request of the same process may hear from the journal that the link is used, before the login is done."""
    here, gate = process(shelf, clock)
    shelf.meanwhile = [here]
    link = ticket(gate, clock)
    made = await here.redeem(link)
    assert made is not None
    assert gate.tickets.cookie(made[0], clock.now()) == made[1]
    assert await here.redeem(link) is None


async def test_a_logout_elsewhere_is_known_soon(shelf: Shelf, clock: HandClock) -> None:
    """As soon as it is looked again."""
    (here, gate), (there, _) = process(shelf, clock), process(shelf, clock)
    made = await here.redeem(ticket(gate, clock))
    assert made is not None
    await here.refresh()
    await there.end(made[1])
    assert gate.tickets.cookie(made[0], clock.now()) is not None
    clock.time += REFRESH_S
    await here.refresh()
    assert gate.tickets.cookie(made[0], clock.now()) is None
