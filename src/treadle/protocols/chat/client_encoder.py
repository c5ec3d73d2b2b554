"""Writes the events of runs as one Chat completion: chunks for a client that streams, one object for one that waits.

A choice is a run of its own; the runs share nothing but the completion's id and the sum of their usage. Nothing is
sent before there is content, so that a run that fails at once can still be answered with a status.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from treadle.core import ids as prefixes
from treadle.core.errors import ErrorInfo
from treadle.core.events import RunEnded, RunEvent, RunStarted
from treadle.core.ids import IdSource
from treadle.core.json import write_json
from treadle.core.request import Request, Surface
from treadle.core.run_endings import failure_of
from treadle.core.usage import Usage, add_usage
from treadle.protocols.chat.client_choice import Choice
from treadle.protocols.error_envelopes import CUT_CALL, openai_error, write_error
from treadle.protocols.protocol_registry import CHAT
from treadle.protocols.sse import write_frame

DONE_FRAME = b"data: [DONE]\n\n"


class _Completion(msgspec.Struct):
    """The fields of a completion beside its choices: its id, its usage, and its end.

    It `is_over` when the last run has ended, or the first one badly: a completion is whole or an error, and runs
    that still continue then are of no use to this client.
    """

    surface: Surface
    ids: IdSource
    going: int
    is_over: bool = False
    head: dict[str, Any] = {}
    used: Usage | None = None
    failure: ErrorInfo | None = None

    @property
    def suffix(self) -> bytes:
        """Return how each of its chunks ends."""
        return b'],"usage":null}\n\n' if self.surface.include_usage else b"]}\n\n"

    def start(self, event: RunStarted) -> bytes:
        """Name the completion after its first run, and return how its chunks begin."""
        if not self.head:
            is_ours = event.response_id.startswith(prefixes.COMPLETION)
            self.head = {
                "id": event.response_id if is_ours else self.ids.new(prefixes.COMPLETION),
                "object": "chat.completion.chunk",
                "created": int(event.created_at),
                "model": event.model,
            }
        return b"data: " + write_json(self.head)[:-1] + b',"choices":[' if self.surface.stream else b""

    def end(self, choice: Choice, event: RunEnded) -> list[bytes]:
        """Return what ends a choice, and with the last one, or one that ended badly, the completion."""
        choice.ended = event
        self.going -= 1
        self.used = event.usage if self.used is None else add_usage(self.used, event.usage)
        self.failure = failure_of(event)
        if self.failure is None and choice.has_cut_call and event.status != "incomplete":
            self.failure = CUT_CALL
        self.is_over = self.failure is not None or not self.going
        if self.failure is None:
            choice.finish(event)
        return self._ending(choice, event) if self.surface.stream else []

    def body(self, choices: Sequence[Choice]) -> bytes:
        """Return the whole completion, or the error envelope of one that failed. It must be over."""
        assert self.is_over, "the run has not ended"
        if self.failure is not None:
            return write_error(CHAT, self.failure)
        body: dict[str, Any] = {**self.head, "object": "chat.completion", "choices": []}
        limit: dict[str, Any] = {}
        for choice in choices:
            body["choices"].append(choice.whole())
            limit = limit or _limit(choice)
        body["usage"] = None if self.used is None else _write_usage(self.used)
        return write_json({**body, **limit} if limit else body)

    def _ending(self, choice: Choice, event: RunEnded) -> list[bytes]:
        if self.failure is not None:
            return [write_frame(write_json({"error": openai_error(self.failure)})), DONE_FRAME]
        frames = choice.take()
        if event.limit:
            limit = write_json(_limit(choice))
            frames[-1] = frames[-1].removesuffix(b"}\n\n") + b"," + limit[1:] + b"\n\n"
        if not self.is_over:
            return frames
        if self.surface.include_usage and self.used is not None:
            frames.append(write_frame(write_json({**self.head, "choices": [], "usage": _write_usage(self.used)})))
        return [*frames, DONE_FRAME]


class Encoder(Choice):
    """Writes one run as one Chat completion: a choice that is all of it."""

    def __init__(self, request: Request, ids: IdSource) -> None:
        super().__init__(0, request.surface)
        self._completion = _Completion(request.surface, ids, 1)

    def body(self) -> bytes:
        """Return the whole completion, or the error envelope of a run that has none. The run must have ended."""
        return self._completion.body((self,))

    def _start(self, event: RunStarted) -> None:
        self.run_id = event.run_id
        prefix = self._completion.start(event)
        if prefix:
            self.begin(prefix, self._completion.suffix)

    def _end(self, event: RunEnded) -> None:
        self._frames = self._completion.end(self, event)

    readers: ClassVar = {**Choice.readers, RunStarted: _start, RunEnded: _end}


class Choices:
    """Writes as many runs as one completion."""

    def __init__(self, request: Request, ids: IdSource, count: int) -> None:
        self._completion = _Completion(request.surface, ids, count)
        self._choices = [Choice(index, request.surface) for index in range(count)]
        self._opened = 0

    @property
    def is_over(self) -> bool:
        """Return whether nothing more will be written."""
        return self._completion.is_over

    def feed(self, choice: int, event: RunEvent) -> list[bytes]:
        """Return the frames to send for an event of the run of that choice; none when the client does not stream."""
        own = self._choices[choice]
        if self.is_over or own.ended is not None:
            return []
        if type(event) is RunStarted:
            self._start(own, event)
            return []
        frames = self._completion.end(own, event) if type(event) is RunEnded else own.feed(event)
        return self._openings(choice) + frames if own.is_open and self._opened <= choice else frames

    def body(self) -> bytes:
        """Return the whole completion, or the error envelope of one that failed. It must be over."""
        return self._completion.body(self._choices)

    def _start(self, choice: Choice, event: RunStarted) -> None:
        choice.run_id = event.run_id
        prefix = self._completion.start(event)
        for each in self._choices:
            each.begin(prefix, self._completion.suffix)

    def _openings(self, choice: int) -> list[bytes]:
        """Show the choices before one that is shown: clients want them in order."""
        frames: list[bytes] = []
        for unopened in self._choices[self._opened : choice]:
            unopened.open()
            frames += unopened.take()
        self._opened = choice + 1
        return frames


def _limit(choice: Choice) -> dict[str, Any]:
    limit = None if choice.ended is None else choice.ended.limit
    return {"treadle": {"run_id": choice.run_id, "limit": limit}} if limit else {}


def _write_usage(usage: Usage) -> dict[str, Any]:
    details = {"cached_tokens": usage.cached_tokens}
    if usage.cache_write_tokens:
        details["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
