"""What changes in a journal, for pages that follow it: runs, sessions, approvals and proposals, each row whole.

Whoever writes, in whatever process, is noticed by looking: while somebody listens the newest rows are read once a
second and compared. The last changes are kept with numbers, so that a page that lost its connection hears what it
missed, or hears that it must read its lists again.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import msgspec

from treadle.core.errors import TreadleError
from treadle.core.json import write_json
from treadle.engine.ports import Clock

POLL_S = 1.0
CHANGES_MAX = 2_000
WINDOW = 100
"""How many rows of each topic are looked at, the newest; a row that is missing among fewer than that is gone."""

Rows = Mapping[str, object]
"""Rows of a topic by their ids, as they are shown."""
ReadRows = Callable[[], Awaitable[Rows]]


class ListChange(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is new or other than it was."""

    number: int
    topic: str
    data: bytes


class ListChanges:
    """Looks at the topics while somebody listens, and tells what changed."""

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
        """Tell whether somebody listens."""
        return self._listeners > 0

    def cursor(self, number: int | None = None) -> str:
        """Name a place in what was told, by default the newest."""
        return f"{self._epoch}.{self._number if number is None else number}"

    def place(self, cursor: str) -> int | None:
        """Return the number behind a cursor; None when what came after it is not known any more."""
        epoch, _, number = cursor.partition(".")
        if epoch != self._epoch or not (number.isascii() and number.isdigit()) or len(number) > 16:
            return None
        first = self._recent[0].number if self._recent else self._number + 1
        return int(number) if first - 1 <= int(number) <= self._number else None

    async def refresh(self) -> None:
        """Look once at every topic; what is seen for the first time is no change."""
        for topic, look in self._topics.items():
            try:
                self._compare(topic, await look())
            except TreadleError:
                continue  # a store that is away is looked at again

    async def follow(self, after: int) -> AsyncGenerator[list[ListChange], None]:
        """Yield what changes after a number, in batches, for ever."""
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
