"""Logins that several processes share: a link is good for one login at any of them, and who logs out is out everywhere.

The journal keeps what was used and ended, so a restart forgets neither. Each process looks there every two seconds
while people use it, which is how long a logout elsewhere takes to be known here.
"""

from treadle.core.errors import TreadleError
from treadle.engine.ports import Clock
from treadle.journal.journal_interface import Store
from treadle.server.auth.page_access import COOKIE_S, PageGate
from treadle.server.auth.signed_tickets import SignedTicket

REFRESH_S = 2.0


class SharedLogins:
    """What the gate of this process knows of links and logins, together with all others of the same journal."""

    def __init__(self, gate: PageGate, store: Store, clock: Clock) -> None:
        self._gate = gate
        self._store = store
        self._clock = clock
        self._refreshed_at = float("-inf")

    async def refresh(self) -> None:
        """Learn what was used and ended elsewhere; a journal that is away is looked at later."""
        if self._clock.monotonic() - self._refreshed_at < REFRESH_S:
            return
        self._refreshed_at = self._clock.monotonic()
        now = self._clock.now()
        try:
            self._gate.tickets.mark_spent(await self._store.tickets.spent(now), now + COOKIE_S)
        except TreadleError:
            return

    async def redeem(self, text: str) -> tuple[str, SignedTicket] | None:
        """Take a link's ticket and return the cookie that it becomes; None for one that is used, late or not ours.

        Raises: StoreError.
        """
        now = self._clock.now()
        link = self._gate.tickets.link_of(text, now)
        if link is None or not await self._store.tickets.spend(link.id, link.expires_at, now):
            return None
        # Whoever looked into the journal meanwhile knows already that it is used: by us.
        return self._gate.tickets.admit(link, now, COOKIE_S)

    async def end(self, cookie: SignedTicket) -> None:
        """Let a cookie be good no more.

        Raises: StoreError.
        """
        now = self._clock.now()
        self._gate.tickets.end(cookie, now)
        await self._store.tickets.spend(cookie.id, cookie.expires_at, now)
