"""The events of runs as one Chat completion: chunks for a client that streams, one object for a client that waits.

A choice is a run of its own; the runs share nothing but the completion's id and the sum of their usage. Nothing is
sent before there is something to say, so that a run that fails at once can still be answered with a status.
"""

from typing import Any

from treadle.canon import ids as prefixes
from treadle.canon.errors import ErrorInfo
from treadle.canon.events import RoundBroken, RunEnded, RunEvent, RunStarted
from treadle.canon.ids import IdSource
from treadle.canon.json import write_json
from treadle.canon.request import Request
from treadle.canon.usage import Usage, add_usage
from treadle.wire.chat.choice import Choice
from treadle.wire.errors import openai_error, write_error
from treadle.wire.sse import write_frame

DONE_FRAME = b"data: [DONE]\n\n"

_CANCELLED = ErrorInfo(code="cancelled", message="The run was cancelled.", status=499)
_UNKNOWN = ErrorInfo(code="upstream_error", message="The run failed.", status=502)


class Choices:
    """Writes as many runs as one completion.

    It `is_over` when the last run has ended, or the first one badly: a completion is whole or an error, and runs
    that still go on then are of no use to this client.
    """

    def __init__(self, request: Request, ids: IdSource, count: int) -> None:
        self._surface = request.surface
        self._ids = ids
        self._head: dict[str, Any] = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": request.model}
        self._prefix = b""
        self._suffix = b'],"usage":null}\n\n' if request.surface.include_usage else b"]}\n\n"
        self._choices = [Choice(index, request.surface) for index in range(count)]
        self._run_ids = [""] * count
        self._opened = 0
        self._ended: dict[int, RunEnded] = {}
        self._failure: ErrorInfo | None = None
        self.is_over = False

    def feed(self, choice: int, event: RunEvent) -> list[bytes]:
        """Return the frames to send for an event of the run of that choice; none when the client does not stream."""
        if self.is_over or choice in self._ended:
            return []
        if type(event) is RunEnded:
            frames = self._end(choice, event)
            return frames if self._surface.stream else []
        if type(event) is RunStarted:
            self._start(choice, event)
            return []
        if type(event) is RoundBroken:
            return []
        own = self._choices[choice]
        own.feed(event)  # pyright: ignore[reportArgumentType] what a choice does not hear of is handled above
        if len(own.entries) == 1 and self._opened > choice:
            return [self._prefix + own.entries.pop() + self._suffix]
        return self._frames(choice) if own.entries else []

    def body(self) -> bytes:
        """Return the whole completion, or the error envelope of one that failed. It must be over."""
        assert self.is_over, "the run has not ended"
        if self._failure is not None:
            return write_error("chat", self._failure)
        usage = self._usage()
        limits = [limit for choice in range(len(self._choices)) for limit in self._limit(choice).items()]
        return write_json(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice.whole() for choice in self._choices],
                "usage": None if usage is None else _write_usage(usage),
                **dict(limits[:1]),
            }
        )

    def _start(self, choice: int, event: RunStarted) -> None:
        self._run_ids[choice] = event.run_id
        if self._prefix:
            return
        is_ours = event.response_id.startswith(prefixes.COMPLETION)
        self._head["id"] = event.response_id if is_ours else self._ids.new(prefixes.COMPLETION)
        self._head["created"] = int(event.created_at)
        self._head["model"] = event.model
        self._prefix = b"data: " + write_json(self._head)[:-1] + b',"choices":['

    def _frames(self, choice: int) -> list[bytes]:
        """Return the frames of a choice, behind the openings of those before it: clients want them in order."""
        entries = self._choices[choice].take()
        if not entries:
            return entries
        assert self._prefix, "a run begins with RunStarted"
        if self._opened <= choice:
            before = self._choices[self._opened : choice]
            for unopened in before:
                unopened.open()
            entries = [entry for unopened in before for entry in unopened.take()] + entries
            self._opened = choice + 1
        return [self._prefix + entry + self._suffix for entry in entries]

    def _end(self, choice: int, event: RunEnded) -> list[bytes]:
        self._ended[choice] = event
        self.is_over = event.status in ("failed", "cancelled") or len(self._ended) == len(self._choices)
        if event.status == "failed":
            self._failure = event.error or _UNKNOWN
            return [write_frame(write_json({"error": openai_error(self._failure)})), DONE_FRAME]
        if event.status == "cancelled":
            self._failure = event.error or _CANCELLED
            return [DONE_FRAME]
        self._choices[choice].finish(event)
        frames = self._frames(choice)
        limit = self._limit(choice)
        if limit and frames:
            frames[-1] = frames[-1].removesuffix(b"}\n\n") + b"," + write_json(limit)[1:] + b"\n\n"
        return frames + self._ending() if self.is_over else frames

    def _ending(self) -> list[bytes]:
        usage = self._usage()
        if usage is None or not self._surface.include_usage:
            return [DONE_FRAME]
        chunk: dict[str, Any] = {**self._head, "choices": [], "usage": _write_usage(usage)}
        return [write_frame(write_json(chunk)), DONE_FRAME]

    def _usage(self) -> Usage | None:
        total: Usage | None = None
        for ended in self._ended.values():
            total = add_usage(total, ended.usage)
        return total

    def _limit(self, choice: int) -> dict[str, Any]:
        limit = self._ended[choice].limit
        return {"treadle": {"run_id": self._run_ids[choice], "limit": limit}} if limit else {}


class Encoder:
    """Writes one run as one Chat completion."""

    def __init__(self, request: Request, ids: IdSource) -> None:
        self._choices = Choices(request, ids, 1)

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames to send; none when the client does not stream, or after the end."""
        return self._choices.feed(0, event)

    def body(self) -> bytes:
        """Return the whole completion, or the error envelope of a run that has none. The run must have ended."""
        return self._choices.body()


def _write_usage(usage: Usage) -> dict[str, Any]:
    details = {"cached_tokens": usage.cached_tokens}
    if usage.cache_write_tokens:
        details["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
