"""Changes in a journal's runs, sessions, approvals and proposals, for pages that follow them; each row is sent whole.

Other processes write too, so while there are listeners the newest rows are polled once a second and compared. Recent
changes are stored with numbers: a page that reconnects gets what it missed, or is told to read its lists again.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import msgspec

from treadle.core.errors import TreadleError
from treadle.core.json import write_json
from treadle.core.shared_ports import Clock

POLL_S = 1.0
CHANGES_MAX = 2_000
WINDOW = 100
"""How many of the newest rows of each topic are compared; if there are fewer, a missing row has been deleted."""

Rows = Mapping[str, object]
"""Rows of a topic by their ids, in the form that is sent."""
ReadRows = Callable[[], Awaitable[Rows]]


class ListChange(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is new or has changed."""

    number: int
    topic: str
    data: bytes


class ListChanges:
    """Polls the topics while there are listeners, and yields changes."""

    def __init__(self, topics: Mapping[str, ReadRows], clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._recent: deque[ListChange] = deque(maxlen=CHANGES_MAX)
        self._known: dict[str, dict[str, bytes]] = {}
        self._changed = asyncio.Event()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_followed(self) -> bool:
        """Return whether there are listeners."""
        return self._listeners > 0

    def cursor(self, number: int | None = None) -> str:
        """Return the cursor of a change, by default the newest."""
        return f"{self._epoch}.{self._number if number is None else number}"

    def place(self, cursor: str) -> int | None:
        """Return the number in a cursor; None if the changes after it are no longer stored."""
        epoch, _, number = cursor.partition(".")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()) or len(number) > 16:
            return None
        first = self._recent[0].number if self._recent else self._number + 1
        return int(number) if first - 1 <= int(number) <= self._number else None

    async def refresh(self) -> None:
        """Read every topic once; the first read of a topic produces no changes."""
        for topic, read in self._topics.items():
            try:
                self._compare(topic, await read())
            except TreadleError:
                continue  # an unavailable store is read again at the next poll

    async def follow(self, after: int) -> AsyncGenerator[list[ListChange], None]:
        """Yield the changes after a number, in batches, indefinitely."""
        self._add_listener()
        try:
            while True:
                news = self._changed
                if fresh := [change for change in self._recent if change.number > after]:
                    after = fresh[-1].number
                    yield fresh
                else:
                    await news.wait()
        finally:
            self._remove_listener()

    def _add_listener(self) -> None:
        self._listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="treadle-changes")

    def _remove_listener(self) -> None:
        self._listeners -= 1
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self) -> None:
        while True:
            await self.refresh()
            await self._clock.sleep(POLL_S)

    def _compare(self, topic: str, rows: Rows) -> None:
        is_first = topic not in self._known
        known = self._known.setdefault(topic, {})
        fresh = {row_id: write_json(row) for row_id, row in rows.items()}
        changed = [(topic, data) for row_id, data in fresh.items() if known.get(row_id) != data]
        if len(fresh) < WINDOW:
            gone = known.keys() - fresh.keys()
            changed += [("gone", write_json({"topic": topic, "id": row_id})) for row_id in sorted(gone)]
        self._known[topic] = fresh
        if is_first or not changed:
            return
        for name, data in changed:
            self._number += 1
            self._recent.append(ListChange(number=self._number, topic=name, data=data))
        news, self._changed = self._changed, asyncio.Event()
        news.set()
