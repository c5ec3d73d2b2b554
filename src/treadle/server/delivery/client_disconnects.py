"""Watches one client of a stream: sends keep-alives, and detects disconnects that the HTTP server does not report."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine


class ClientPresence:
    """Calls `send_keep_alive` after `keep_alive_s` without a write; None for a response that is not a stream.

    `until_gone` runs until the client disconnects; it is not needed under Treadle's own server, which reports that.
    A writer sets `written_at` at each write.
    """

    __slots__ = ("_keep_alive_s", "_send_keep_alive", "_sending", "_timer", "_waiting", "loop", "written_at")

    def __init__(
        self,
        break_silence: Callable[[], Awaitable[None]] | None,
        keep_alive_s: float,
        until_gone: Coroutine[None, None, None] | None = None,
    ) -> None:
        self._send_keep_alive = break_silence
        self._keep_alive_s = keep_alive_s
        self.loop = asyncio.get_running_loop()
        self.written_at = self.loop.time()
        self._sending: asyncio.Future[None] | None = None
        self._waiting = None if until_gone is None else self.loop.create_task(until_gone)
        self._timer = None if break_silence is None else self.loop.call_later(keep_alive_s, self._check)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        for work in (self._waiting, self._sending):
            if work is not None:
                work.cancel()
        self._waiting = self._sending = None

    def _check(self) -> None:
        """Send a keep-alive if one is due, and schedule the next check."""
        now = self.loop.time()
        left_s = self.written_at + self._keep_alive_s - now
        if left_s <= 0:
            left_s = self._keep_alive_s
            assert self._send_keep_alive is not None
            if self._sending is None or self._sending.done():
                self.written_at = now
                self._sending = asyncio.ensure_future(self._send_keep_alive())
        self._timer = self.loop.call_later(left_s, self._check)
