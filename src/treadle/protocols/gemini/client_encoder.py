"""Writes the events of runs as Gemini's responses: frames for a client that streams, one object for one that waits.

A candidate is a run of its own. There is one path: every event becomes parts, the parts are folded into the content,
and only then, if the client streams, written. Calls that Treadle runs itself are not shown: Gemini has no form for
them. Every frame has a part, because clients drop a turn that has an empty one, and there are no comments, because
clients read them as JSON.
"""

from collections.abc import Callable
from typing import Any, ClassVar, assert_never

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ItemAdded,
    ItemDone,
    KeptAlive,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ToolStarted,
)
from treadle.core.ids import IdSource
from treadle.core.items import (
    AnyPart,
    Blob,
    CallItem,
    Extra,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.core.json import write_json
from treadle.core.request import Request, Surface
from treadle.core.run_endings import failure_of
from treadle.core.usage import Usage, add_usage
from treadle.protocols.error_envelopes import write_error
from treadle.protocols.gemini.content_parts import PART, named_call, own_fields, seal, write_arguments, write_part
from treadle.protocols.gemini.field_spelling import PROTOCOL
from treadle.protocols.responses.hosted_calls import spell_out
from treadle.protocols.sse import CR, LF, write_frame
from treadle.protocols.translation_notes import Notes

_FINISH_REASONS = {"length": "MAX_TOKENS", "filtered": "SAFETY"}
_BREAK = "\n\n"
_EMPTY: dict[str, Any] = {"text": ""}
_SIGNED = "thoughtSignature"
_TEXTS = (TextPart, RefusalPart)


class Candidate:
    """Writes one run as one candidate: responses for a client that streams, folded into one for a client that waits.

    With `names_calls` the ids of calls travel in their signatures too. `responses` are those that were not taken yet.
    """

    def __init__(self, index: int, surface: Surface, *, names_calls: bool = False) -> None:
        self._index = index
        self._names_calls = names_calls
        self._surface = surface
        self._fold = _Fold()
        self._sent: dict[int, int] = {}
        self._parts: dict[int, int] = {}
        self._thoughts: dict[int, tuple[bool, int]] = {}
        self._shown: set[tuple[int, int]] = set()
        self._open: dict[int, type] = {}
        self._held: set[int] = set()
        self._about: dict[str, Any] = {}
        self._has_refused = False
        self._reason: str | None = None
        self._tail = b""
        self.responses: list[bytes] = []

    def begin(self, tail: bytes) -> None:
        """Set what stands behind the candidate in each response; must come before any event."""
        self._tail = b'],"role":"model"},"index":%d}]' % self._index + tail

    def feed(self, event: RunEvent) -> None:
        """Take an event of the run."""
        if type(event) is TextDelta:
            self._send_text(event.index, event.text, event.part)
            if event.extra is not None:
                self._show_early(event, event.extra)
        elif (read := self._readers.get(type(event))) is not None:
            read(self, event)

    def finish(self, ended: RunEnded) -> None:
        """End the candidate of a run that ended well."""
        reason = _FINISH_REASONS.get(ended.stop) if ended.status == "incomplete" else None
        self._reason = reason or ("SAFETY" if self._has_refused else "STOP")

    def last(self) -> dict[str, Any]:
        """Return the candidate as the last response of a stream has it."""
        return self._entry([_EMPTY])

    def whole(self) -> dict[str, Any]:
        """Return the whole candidate, once the run has ended."""
        return self._entry(self._fold.parts() or [_EMPTY])

    def _begin(self, event: ItemAdded) -> None:
        """Open an item; while another of its kind is open it is held, because all texts are one content here."""
        kind = type(event.item)
        if kind in self._open.values():
            self._held.add(event.index)
        self._open[event.index] = kind

    def _send_text(self, index: int, text: str, part: int) -> None:
        if part > self._parts.get(index, -1) + 1:
            # What is not text stands before this part and is known only in the end: the rest waits for it.
            self._held.add(index)
        self._parts[index] = part
        if text and index not in self._held:
            is_first = index not in self._sent
            self._sent[index] = self._sent.get(index, 0) + len(text)
            self._send({"text": self._broken(text) if is_first else text})

    def _decline(self, event: RefusalDelta) -> None:
        self._has_refused = True
        self._send_text(event.index, event.text, event.part)

    def _think(self, event: ReasoningDelta) -> None:
        # Parts of one thought are paragraphs here.
        part, last = (event.is_summary, event.part), self._thoughts.get(event.index)
        self._send_thought(event.index, _BREAK + event.text if event.text and last not in (None, part) else event.text)
        self._thoughts[event.index] = part

    def _send_thought(self, index: int, text: str) -> None:
        if text and index not in self._held:
            self._sent[index] = self._sent.get(index, 0) + len(text)
            self._send({"text": text, "thought": True})

    def _broken(self, text: str) -> str:
        """Part a text from the one before: those of several rounds are one content here."""
        return _BREAK + text if self._fold.has_text else text

    def _complete(self, event: ItemDone) -> None:
        """Send what of an item was not streamed."""
        index, item = event.index, event.item
        self._open.pop(index, None)
        self._held.discard(index)
        sent = self._sent.get(index, 0)
        match item:
            case MessageItem():
                self._complete_message(index, item)
            case ReasoningItem():
                self._send_thought(index, _BREAK.join(filter(None, (*item.summary, *item.text)))[sent:])
                self._sign({"text": "", "thought": True}, item.blobs)
            case CallItem():
                if item.side == "client":
                    self._call(item)
            case OpaqueItem():
                for message in spell_out((item,), Notes()):
                    if isinstance(message, MessageItem):
                        self._complete_message(index, message)
            case ResultItem() | ReferenceItem():
                pass
            case _:
                assert_never(item)

    def _complete_message(self, index: int, item: MessageItem) -> None:
        """Send the parts that were not streamed, each in its place."""
        sent = self._sent.get(index, 0)
        for place, part in enumerate(item.content):
            if not isinstance(part, _TEXTS):
                if (index, place) not in self._shown:
                    self._show(part)
                continue
            self._has_refused = self._has_refused or type(part) is RefusalPart
            self._send_text(index, part.text[sent:], self._parts.get(index, -1))
            sent = max(0, sent - len(part.text))
        if item.extra is not None:
            self._about |= own_fields(item.extra)
        self._sign(_EMPTY, item.blobs)

    def _show_early(self, event: TextDelta, extra: Extra) -> None:
        """Send a part that came between the texts, unless its message has to wait."""
        raw = own_fields(extra).get(PART)
        if raw is not None and event.index not in self._held:
            self._shown.add((event.index, event.part))
            self._show(OpaquePart(protocol=PROTOCOL, raw=raw))

    def _show(self, part: AnyPart) -> None:
        written = write_part(part, Notes())
        if written is not None:
            self._send(written)

    def _call(self, call: CallItem) -> None:
        arguments = {"input": call.arguments} if call.kind == "custom" else write_arguments(call.arguments)
        part = {"functionCall": {"id": call.call_id, "name": call.name, "args": arguments}}
        blobs = (*call.blobs, named_call(call.call_id)) if self._names_calls else call.blobs
        self._send({**part, _SIGNED: seal(blobs)} if blobs else part)

    def _sign(self, part: dict[str, Any], blobs: tuple[Blob, ...]) -> None:
        if blobs:
            self._send({**part, _SIGNED: seal(blobs)})

    def _send_status(self, event: ToolStarted) -> None:
        if self._surface.tool_status:
            self._send({"text": self._broken(f"Calling {event.call.name}…")})

    def _keep_alive(self, _: KeptAlive) -> None:
        self._send(_EMPTY)

    _readers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        ItemAdded: _begin,
        RefusalDelta: _decline,
        ReasoningDelta: _think,
        ItemDone: _complete,
        ToolStarted: _send_status,
        KeptAlive: _keep_alive,
    }
    """The method for each kind of event; others are not shown in a candidate."""

    def _entry(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the entry that ends the candidate, with what its provider added about it."""
        content = {"parts": parts, "role": "model"}
        return {"content": content, "finishReason": self._reason, **self._about, "index": self._index}

    def _send(self, part: dict[str, Any]) -> None:
        self._fold.add(part)
        if self._surface.stream:
            assert self._tail, "a run begins with RunStarted"
            self.responses.append(b'{"candidates":[{"content":{"parts":[' + write_json(part) + self._tail)


class Candidates:
    """Writes as many runs as one response.

    It `is_over` when the last run has ended, or the first one badly: a response is whole or an error.
    """

    def __init__(self, request: Request, ids: IdSource, count: int) -> None:
        self._surface = request.surface
        self._tail: dict[str, Any] = {}
        self._run_ids = [""] * count
        # AI SDK's provider of Gemini drops the ids of calls and keeps signatures (opencode 1.18, 2026-11-15).
        is_read = request.options.extra_protocol == PROTOCOL
        self._candidates = [Candidate(index, request.surface, names_calls=is_read) for index in range(count)]
        self._ended: dict[int, RunEnded] = {}
        self._failure: ErrorInfo | None = None
        self._has_begun = False
        self.is_over = False

    def feed(self, choice: int, event: RunEvent) -> list[bytes]:
        """Return the frames to send for an event of the run of that candidate; none when the client does not stream."""
        if self.is_over or choice in self._ended:
            return []
        if type(event) is RunStarted:
            self._start(choice, event)
            return []
        if type(event) is RunEnded:
            self._end(choice, event)
            return self._ending(choice, event) if self._surface.stream else []
        own = self._candidates[choice]
        own.feed(event)
        if not own.responses:
            return []
        responses, own.responses = own.responses, []
        return self._written(responses)

    def body(self) -> bytes:
        """Return the whole response, or the error envelope of one that failed. It must be over."""
        assert self.is_over, "the run has not ended"
        if self._failure is not None:
            return write_error(PROTOCOL, self._failure)
        candidates = [candidate.whole() for candidate in self._candidates]
        limits = [limit for choice in range(len(candidates)) for limit in self._limit(choice).items()]
        return write_json({"candidates": candidates, **self._usage(), **self._tail, **dict(limits[:1])})

    def _start(self, choice: int, event: RunStarted) -> None:
        self._run_ids[choice] = event.run_id
        self._tail = self._tail or {"modelVersion": event.model, "responseId": event.response_id}
        self._candidates[choice].begin(b"," + write_json(self._tail)[1:])

    def _end(self, choice: int, event: RunEnded) -> None:
        self._ended[choice] = event
        self._failure = failure_of(event)
        self.is_over = self._failure is not None or len(self._ended) == len(self._candidates)
        if self._failure is None:
            self._candidates[choice].finish(event)

    def _ending(self, choice: int, event: RunEnded) -> list[bytes]:
        if self._failure is not None:
            return self._written([write_error(PROTOCOL, self._failure)])
        usage = self._usage() if self.is_over else {}
        last = {"candidates": [self._candidates[choice].last()], **usage, **self._tail, **self._limit(choice)}
        return self._written([write_json(last)])

    def _written(self, responses: list[bytes]) -> list[bytes]:
        """Return responses as frames, or as elements of the array."""
        frames: list[bytes] = []
        if not self._surface.is_array:
            for each in responses:
                is_line = LF not in each and CR not in each
                frames.append(b"data: %b\n\n" % each if is_line else write_frame(each))
            return frames
        for each in responses:
            frames.append((b",\n" if self._has_begun else b"[") + each)
            self._has_begun = True
        if self.is_over:
            frames.append(b"]" if self._has_begun else b"[]")
        return frames

    def _usage(self) -> dict[str, Any]:
        total: Usage | None = None
        for ended in self._ended.values():
            total = add_usage(total, ended.usage)
        return {} if total is None else {"usageMetadata": _usage(total)}

    def _limit(self, choice: int) -> dict[str, Any]:
        limit = self._ended[choice].limit
        return {"treadle": {"run_id": self._run_ids[choice], "limit": limit}} if limit else {}


class Encoder:
    """Writes one run as one generated content."""

    def __init__(self, request: Request, ids: IdSource) -> None:
        self._candidates = Candidates(request, ids, 1)

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames to send; none when the client does not stream, or after the end."""
        return self._candidates.feed(0, event)

    def body(self) -> bytes:
        """Return the whole response, or the error envelope of a run that has none. The run must have ended."""
        return self._candidates.body()


class _Fold:
    """The parts that the frames so far amount to: what a client that does not stream is given."""

    def __init__(self) -> None:
        self.has_text = False
        self._parts: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []

    def add(self, part: dict[str, Any]) -> None:
        """Add one part; texts that follow each other are one text, and a signature ends it."""
        if "text" not in part:
            self._append(part, [])
            return
        is_thought = "thought" in part
        self.has_text = self.has_text or (not is_thought and bool(part["text"]))
        last = self._parts[-1] if self._parts else {}
        if "text" not in last or _SIGNED in last or ("thought" in last) != is_thought:
            self._append({**part}, [part["text"]])
            return
        self._texts[-1].append(part["text"])
        if len(part) > 1:
            last |= {**part, "text": last["text"]}

    def parts(self) -> list[dict[str, Any]]:
        """Return the parts without empty texts."""
        whole = (
            {**part, "text": "".join(texts)} if "text" in part else part
            for part, texts in zip(self._parts, self._texts, strict=True)
        )
        return [part for part in whole if part.get("text") != "" or _SIGNED in part]

    def _append(self, part: dict[str, Any], texts: list[str]) -> None:
        self._parts.append(part)
        self._texts.append(texts)


def _usage(usage: Usage) -> dict[str, int]:
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": max(0, usage.output_tokens - usage.reasoning_tokens),
        "totalTokenCount": usage.total_tokens,
    }
    if usage.reasoning_tokens:
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
    if usage.cached_tokens:
        counts["cachedContentTokenCount"] = usage.cached_tokens
    return counts
