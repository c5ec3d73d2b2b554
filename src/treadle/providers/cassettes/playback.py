"""Replays recorded calls, with the chunks as they were read, and refuses requests that were not recorded.

Recorded resets and timeouts are raised as the network would raise them, so the same code handles both. Every recorded
call is played once, equal ones in the order in which they were made.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from treadle.core.errors import BrokenStream
from treadle.http.client_connection import BytesConsumer
from treadle.http.client_errors import ConnectionBroken
from treadle.providers.cassettes.file_format import Call, Cassette, canonical_body, data_of, first_difference
from treadle.providers.cassettes.recorder import Secrets
from treadle.providers.provider_client import HttpAnswer, read_into

MISMATCH = "cassette_mismatch"
Sleep = Callable[[float], Awaitable[None]]


class _Unrecorded(BrokenStream):
    """The cassette has no matching call, so a retry is useless."""

    retryable = False


class Player:
    """Plays one cassette. `speed` 0 plays without pauses, 1 with the recorded ones, 2 twice as fast."""

    def __init__(
        self,
        cassette: Cassette,
        *,
        name: str = "",
        speed: float = 0.0,
        secrets: Secrets | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.cassette = cassette
        self._name = name or cassette.header.upstream
        self._speed = speed
        self._secrets = secrets or Secrets()
        self._sleep = sleep
        self._waiting: dict[tuple[str, bytes], deque[Call]] = {}
        self._counts: dict[tuple[str, bytes], int] = {}
        for call in cassette.calls:
            self._waiting.setdefault(call.key, deque()).append(call)
            self._counts[call.key] = self._counts.get(call.key, 0) + 1

    @property
    def left(self) -> int:
        """Return how many calls have not been played."""
        return sum(map(len, self._waiting.values()))

    async def send(self, path: str, body: bytes) -> HttpAnswer:
        """Return the recorded response of a request.

        Raises: BrokenStream (code `cassette_mismatch`); OSError as recorded.
        """
        call = self._take_call(path, self._secrets.blank(body))
        if call.answered is None:
            await self._pause(call.ended.after_s)
            raise _failure(call)
        await self._pause(call.answered.after_s)
        return PlayedAnswer(call, self._pause)

    def _take_call(self, path: str, body: bytes) -> Call:
        key = (path, canonical_body(body))
        waiting = self._waiting.get(key)
        if waiting:
            return waiting.popleft()
        if key in self._counts:
            count = self._counts[key]
            times = "once" if count == 1 else f"{count} times"
            raise self._mismatch(f"this request was recorded {times} and has been asked once more")
        raise self._mismatch(self._describe_mismatch(path, body))

    def _describe_mismatch(self, path: str, body: bytes) -> str:
        """Describe how a request differs from the first recorded one that was not played yet."""
        waiting = {id(call) for calls in self._waiting.values() for call in calls}
        calls = [(number, call) for number, call in enumerate(self.cassette.calls, 1) if id(call) in waiting]
        same_path = [(number, call) for number, call in calls if call.asked.path == path]
        if same_path:
            number, call = same_path[0]
            return f"the request differs from call {number} at {first_difference(call.body, body)}"
        if calls:
            return f"the request goes to {path}, call {calls[0][0]} to {calls[0][1].asked.path}"
        return f"all {len(self.cassette.calls)} calls have been played"

    def _mismatch(self, message: str) -> BrokenStream:
        return _Unrecorded(
            f"upstream '{self._name}' plays a cassette: {message}",
            code=MISMATCH,
            hint="record it again, or ask what was recorded; a server that is started again plays from the beginning",
        )

    async def _pause(self, seconds: float) -> None:
        if self._speed > 0 and seconds > 0:
            await self._sleep(seconds / self._speed)


class PlayedAnswer:
    """The response of one recorded call; also its own body."""

    def __init__(self, call: Call, pause: Sleep) -> None:
        assert call.answered is not None, "a call that was never answered has no answer to play"
        self.status = call.answered.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in call.answered.headers.items()}
        self.content_type = self.headers.get("content-type", "application/octet-stream").partition(";")[0].strip()
        self._call = call
        self._chunks = deque(call.chunks)
        self._pause = pause

    @property
    def content(self) -> "PlayedAnswer":
        """Return the body: this object."""
        return self

    async def readany(self) -> bytes:
        """Return the next chunk as it was read; empty at the end.

        Raises: OSError.
        """
        if self._chunks:
            chunk = self._chunks.popleft()
            await self._pause(chunk.after_s)
            return data_of(chunk)
        await self._pause(self._call.ended.after_s)
        if self._call.ended.how in ("eof", "closed"):
            return b""
        raise _failure(self._call)

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        """Play chunks until `take` returns a value. Raises: OSError."""
        return read_into(self.readany, take)

    async def end(self) -> None:
        """Stop playing; the remaining chunks are not needed."""
        self._chunks.clear()

    def close(self) -> None:
        """Stop playing."""
        self._chunks.clear()


def _failure(call: Call) -> OSError:
    """Return the error that the network raises for such an end."""
    match call.ended.how:
        case "timeout":
            return TimeoutError()
        case "refused" | "closed" | "eof":
            return ConnectionBroken("recorded end")
        case "reset":
            return ConnectionBroken("recorded reset")
