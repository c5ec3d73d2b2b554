"""Sessions: where a conversation goes on, and that only one run at a time carries it further."""

import asyncio

from treadle.canon.errors import Conflict, NotFound
from treadle.store.journal import Store


class Seat:
    """The right to carry a session further; held by one run from before it starts until its end is tidied up."""

    def __init__(self, session_id: str, key_id: str) -> None:
        self.session_id = session_id
        self.key_id = key_id
        self.head: str | None = None
        self.is_over = False
        self.left = asyncio.Event()


class Sessions:
    """Hands out the seats of the sessions that runs of this process use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: dict[tuple[str, str], Seat] = {}

    async def enter(self, session_id: str, key_id: str) -> Seat:
        """Take the session's seat; after a run that has told its end this waits until it has moved the session on.

        Raises: Conflict while another run is going on; NotFound.
        """
        place = (key_id, session_id)
        while (taken := self._taken.get(place)) is not None:
            if not taken.is_over:
                raise Conflict(f"A run of session {session_id!r} is still going on.", param="session")
            await taken.left.wait()
        seat = self._taken[place] = Seat(session_id, key_id)
        try:
            session = await self._store.find_session(session_id, key_id=key_id)
            if session is None:
                raise NotFound(f"No session {session_id!r}.", param="session")
        except BaseException:
            self.leave(seat)
            raise
        seat.head = session.head_run_id
        return seat

    def leave(self, seat: Seat | None) -> None:
        """Give the seat back."""
        if seat is None:
            return
        self._taken.pop((seat.key_id, seat.session_id), None)
        seat.left.set()
