"""Logins that several processes share: a link is valid for one login at any of them, and a logout applies to all.

The journal stores used links and ended logins across restarts. While people use a process, it reads them every two
seconds, so a logout elsewhere takes effect here within that time.
"""

from treadle.core.errors import TreadleError
from treadle.core.shared_ports import Clock
from treadle.journal.journal_interface import Store
from treadle.server.auth.page_access import COOKIE_S, PageGate
from treadle.server.auth.signed_tickets import SignedTicket

REFRESH_S = 2.0


class SharedLogins:
    """Synchronises this process's links and logins with those of all processes of the same journal."""

    def __init__(self, gate: PageGate, store: Store, clock: Clock) -> None:
        self._gate = gate
        self._store = store
        self._clock = clock
        self._refreshed_at = float("-inf")

    async def refresh(self) -> None:
        """Read what was used and ended elsewhere; if the journal is unavailable, try again later."""
        if self._clock.monotonic() - self._refreshed_at < REFRESH_S:
            return
        self._refreshed_at = self._clock.monotonic()
        now = self._clock.now()
        try:
            self._gate.tickets.mark_spent(await self._store.tickets.spent(now), now + COOKIE_S)
        except TreadleError:
            return

    async def redeem(self, text: str) -> tuple[str, SignedTicket] | None:
        """Exchange a link's ticket for a cookie; None for one that is used, expired or not signed by us.

        Raises: StoreError.
        """
        now = self._clock.now()
        link = self._gate.tickets.link_of(text, now)
        if link is None or not await self._store.tickets.spend(link.id, link.expires_at, now):
            return None
        # `admit` and not `redeem`: a refresh during the await may have marked the link as used, by this very call.
        return self._gate.tickets.admit(link, now, COOKIE_S)

    async def end(self, cookie: SignedTicket) -> None:
        """Invalidate a cookie.

        Raises: StoreError.
        """
        now = self._clock.now()
        self._gate.tickets.end(cookie, now)
        await self._store.tickets.spend(cookie.id, cookie.expires_at, now)
