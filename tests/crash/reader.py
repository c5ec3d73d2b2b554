"""Clients that go on after a crash where they stopped, as the documentation says: with a run's events, or a stream."""

import random
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from gateway.apis import text_of
from treadle.core.events import Numbered, Numbering, RunEnded, RunEvent, RunRecovered
from treadle.core.journal_entries import Entry
from treadle.core.request import Request, Surface
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName
from treadle.runs.replay.event_replay import DamagedJournal, replay_journal
from treadle.server.delivery.replay_encoders import AppendOnlyWriter, RunIds, resumable_writer
from treadle.server.delivery.stream_event_ids import FrameNumbers, Position, read_position


class Got(msgspec.Struct, frozen=True):
    """An event as a client got it; `after` is what a recovery says of it: the number of the last event that stands."""

    number: int
    event: RunEvent
    after: int = 0


def numbered(batch: Sequence[Numbered], numbering: Numbering) -> Iterator[Got]:
    """Yield events as a server numbers them; one that does not stand has no number."""
    for each in batch:
        last = numbering.number
        if each.stands:
            yield Got(numbering.take(each.event), each.event, last)


class Resumed:
    """What a client has of a run, over any number of connections: of what it got, and the numbers it went back to."""

    def __init__(self, got: Sequence[Got | int] = ()) -> None:
        self.events: list[Got] = []
        self.all_ids: dict[int, RunEvent] = {}
        self._places: dict[int, list[Got]] = {0: []}
        self.problems: list[str] = []
        for each in got:
            if isinstance(each, int):
                self.go_back_to(each)
            else:
                self.take(each)

    @property
    def after(self) -> int:
        """Return the number that the client goes on after."""
        return self.events[-1].number if self.events else 0

    @property
    def has_ended(self) -> bool:
        """Tell whether the run's end has come."""
        return bool(self.events) and isinstance(self.events[-1].event, RunEnded)

    def take(self, got: Got) -> None:
        """Take the next event; what does not stand any more is dropped."""
        if isinstance(got.event, RunRecovered):
            self.events = [each for each in self.events if each.number <= got.after]
        if got.number <= self.after:
            self.problems.append(f"the event {got.number} comes after {self.after}")
        if self.all_ids.setdefault(got.number, got.event) != got.event:
            self.problems.append(f"the number {got.number} stands at two events")
        self.events.append(got)
        self._places[got.number] = self.events.copy()

    def go_back(self, chance: random.Random) -> int:
        """Forget all that came after some number that it once had, be it one that does not stand any more."""
        number = chance.choice([*self._places])
        self.go_back_to(number)
        return number

    def go_back_to(self, number: int) -> None:
        """Forget all that came after this number."""
        self.events = self._places[number].copy()

    async def connect(self, batches: AsyncIterator[list[Numbered]]) -> None:
        """Read what comes after what the client has, until the connection breaks or the run ends."""
        numbering, after = Numbering(), self.after
        async for batch in batches:
            for got in numbered(batch, numbering):
                if got.number > after:
                    self.take(got)

    def check(self, entries: Sequence[Entry]) -> Iterator[str]:
        """Say where the client has something else than the journal tells."""
        yield from self.problems
        try:
            events = replay_journal(entries)
        except DamagedJournal:
            return
        numbering = Numbering()
        told = [(numbering.take(each.event), each.event) for each in events]
        have = [(each.number, each.event) for each in self.events]
        if have != told[: len(have)]:
            yield "a client that went on after a crash has other events than the journal tells"
        elif self.has_ended and len(have) < len(told):
            yield "a client that went on after a crash lacks events that the journal tells"


class Streamed:
    """What a client of one protocol has of a run, over any number of connections, each resumed by the last id."""

    def __init__(self, protocol: ProtocolName, run_id: str) -> None:
        self._request = Request(protocol=protocol, model="m", surface=Surface(stream=True))
        self._run_id = run_id
        self._frames: list[bytes] = []
        self._last = ""
        self._places: list[tuple[str, list[bytes]]] = [("", [])]
        self._has_diverged = False
        self.has_ended = False

    async def connect(self, batches: AsyncIterator[list[Numbered]]) -> None:
        """Read until the connection breaks, the process loses the run, or the run ends."""
        telling = self._telling(read_position(self._last) if self._last else None)
        async for batch in batches:
            self._take(telling.encode(batch))
            if telling.ended is not None:
                self.has_ended = batch[-1].stands
                return

    def go_back(self, chance: random.Random) -> None:
        """Forget all that came after some id that it once had, be it one of a process that is dead."""
        self._last, frames = chance.choice(self._places)
        self._frames = frames.copy()

    def check(self, entries: Sequence[Entry]) -> Iterator[str]:
        """Say where the client has another answer than the journal tells.

        A run that failed or was cancelled when it was repeated may have less than its client was sent.
        """
        whole, name = Streamed(self._request.protocol, self._run_id), self._request.protocol
        telling = whole._telling(None)
        whole._take(telling.encode(replay_journal(entries)))
        text, answer = self._text(), whole._text()
        if self._has_diverged:
            # A repeated call that a limit cut short has less than was journalled of it: that differs for everybody.
            if text and answer.startswith(text) and not whole._has_diverged:
                yield f"a {name} client that has {text!r} was told that {answer!r} is something else"
        elif telling.ended is not None and telling.ended.status in ("failed", "cancelled"):
            if not text.startswith(answer[: len(text)]):
                yield f"a {name} client has {text!r}, and the answer was {answer!r} when it failed"
        elif self.has_ended and (text, self._last) != (answer, whole._last):
            yield f"a {name} client has {text!r}, and the answer is {answer!r}"

    def _telling(self, position: Position | None) -> AppendOnlyWriter:
        encoder = PROTOCOLS[self._request.protocol].codec.encoder(self._request, RunIds(self._run_id))
        first = int(self._request.protocol != "responses")
        return resumable_writer(self._request, encoder, FrameNumbers(position=position, first=first, shows_ids=True))

    def _take(self, frames: list[bytes]) -> None:
        self._has_diverged |= any(b"the answer went on differently" in frame for frame in frames)
        for frame in frames:
            head, _, rest = frame.partition(b"\n")
            if head.startswith(b"id: "):
                self._last = head.removeprefix(b"id: ").decode()
                self._frames.append(rest)
                self._places.append((self._last, self._frames.copy()))

    def _text(self) -> str:
        return text_of(self._request.protocol, b"".join(self._frames))
