"""Whether a client is still there while it waits, and whether its stream has been silent for too long.

Treadle's own server says when a connection is gone, so nothing need wait for that; under another one somebody does.
"""

import asyncio
from collections.abc import Awaitable, Callable

from treadle.server.http import Exchange


class Presence:
    """Looks after one client: `gone` is called when it went away, `break_silence` where nothing was sent for a while.

    Without `break_silence` there is nothing to break, as for an answer that is no stream.
    """

    __slots__ = (
        "_break_silence",
        "_breaking",
        "_exchange",
        "_gone",
        "_keep_alive_s",
        "_late",
        "_loop",
        "_timer",
        "_waiting",
        "_written_at",
    )

    def __init__(
        self,
        exchange: Exchange,
        gone: Callable[[], None],
        break_silence: Callable[[], Awaitable[None]] | None,
        keep_alive_s: float,
    ) -> None:
        self._exchange = exchange
        self._gone = gone
        self._break_silence = break_silence
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._breaking: asyncio.Future[None] | None = None
        is_told = exchange.tell_gone(gone)
        self._waiting = None if is_told else self._loop.create_task(self._wait())
        self._late = self._loop.call_soon(gone) if exchange.is_gone else None
        self._timer = None if break_silence is None else self._loop.call_later(keep_alive_s, self._look)

    def wrote(self) -> None:
        """Hear that something is being sent."""
        self._written_at = self._loop.time()

    def end(self) -> None:
        """Look after nobody any more."""
        self._exchange.tell_gone(None)
        for timer in (self._timer, self._late):
            if timer is not None:
                timer.cancel()
        for work in (self._waiting, self._breaking):
            if work is not None:
                work.cancel()
        self._waiting = self._breaking = None

    async def _wait(self) -> None:
        await self._exchange.disconnected()
        self._gone()

    def _look(self) -> None:
        """Break a silence that has lasted; look again when the next one would have."""
        left_s = self._written_at + self._keep_alive_s - self._loop.time()
        if left_s <= 0:
            left_s = self._keep_alive_s
            assert self._break_silence is not None
            if self._breaking is None or self._breaking.done():
                self.wrote()
                self._breaking = asyncio.ensure_future(self._break_silence())
        self._timer = self._loop.call_later(left_s, self._look)
