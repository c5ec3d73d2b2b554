"""The events of a run, in order: the same types from the provider's decoder to the client's encoder.

A decoder turns a provider's bytes into *model events* (added, deltas, done, noted, and last exactly one of finished or
failed). The engine passes on the item events, with indexes unique in the run, and adds the *run events*. `index` is a
key that identifies an item within its stream, and never a position in any protocol.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Literal, Protocol

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.items import AnyItem, CallItem, Extra, ResultItem
from treadle.core.json import OptionalRaw, write_json
from treadle.core.request import Note
from treadle.core.result_envelope import envelope_of
from treadle.core.tool_definitions import Envelope
from treadle.core.usage import Usage

Stop = Literal["done", "stop_sequence", "calls", "length", "filtered"]
Status = Literal["queued", "running", "waiting", "requires_action", "completed", "incomplete", "failed", "cancelled"]
DecisionStatus = Literal["approved", "denied", "expired", "cancelled"]
ENDED: frozenset[str] = frozenset({"requires_action", "completed", "incomplete", "failed", "cancelled"})


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Something that happened."""


class ItemAdded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="item.added"):
    """An item begins: its id, name and role are known, its content is empty."""

    index: int
    item: AnyItem


class TextDelta(Event, frozen=True, kw_only=True, omit_defaults=True, tag="text.delta", gc=False):
    """More text of a message's part; `logprobs` is an array of its tokens, where they were asked for.

    `extra` is what its protocol says beside the text (citations), perhaps without any more of it.
    """

    index: int
    text: str
    part: int = 0
    logprobs: OptionalRaw = None
    extra: Extra | None = None


class RefusalDelta(Event, frozen=True, kw_only=True, omit_defaults=True, tag="refusal.delta", gc=False):
    """More of a refusal."""

    index: int
    text: str
    part: int = 0
    logprobs: OptionalRaw = None


class ReasoningDelta(Event, frozen=True, kw_only=True, omit_defaults=True, tag="reasoning.delta", gc=False):
    """More of the reasoning: raw, or of a summary."""

    index: int
    text: str
    part: int = 0
    is_summary: bool = False


class ArgumentsDelta(Event, frozen=True, kw_only=True, omit_defaults=True, tag="arguments.delta", gc=False):
    """More of a call's arguments."""

    index: int
    text: str


DELTAS: frozenset[type] = frozenset({TextDelta, RefusalDelta, ReasoningDelta, ArgumentsDelta})
"""The pieces of items: by far the most frequent events, relevant only for streaming readers."""


class ItemDone(Event, frozen=True, kw_only=True, omit_defaults=True, tag="item.done"):
    """An item is complete; `item` is all of it."""

    index: int
    item: AnyItem


class Noted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="noted"):
    """A decoder repaired, coerced or dropped something."""

    note: Note


class Finished(Event, frozen=True, kw_only=True, omit_defaults=True, tag="finished"):
    """A model call ended as the protocol says it should."""

    stop: Stop
    usage: Usage | None = None
    raw_stop: str | None = None


class Failed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="failed"):
    """A model call failed after it had started."""

    error: ErrorInfo


class Interrupted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="interrupted"):
    """The journal of a model call ends before the call did: its process died."""


class RunStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run.started"):
    """A run began; its ids are durable."""

    run_id: str
    response_id: str
    model: str
    created_at: float
    previous_response_id: str | None = None


class RoundStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="round.started"):
    """A model call is about to be made."""

    round: int
    fingerprint: str
    tools: int = 0
    final: bool = False


class RoundBroken(Event, frozen=True, kw_only=True, omit_defaults=True, tag="round.broken"):
    """A model call was interrupted by the death of its process; it is repeated, and its output is void.

    `indexes` are its items that had started and not ended.
    """

    round: int
    indexes: tuple[int, ...] = ()


class RunRecovered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run.recovered"):
    """Another process recovered the run in the middle of a model call.

    Events that a client got after the one before this are not part of the run; `after` is that one's number, where
    events have numbers. The events that follow are, and the next of them may break the model call.
    """

    after: int = 0


class ToolStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="tool.started"):
    """A server tool begins to run; its call is durable."""

    index: int
    call: CallItem
    source: str = ""


class ToolFinished(Event, frozen=True, kw_only=True, omit_defaults=True, tag="tool.finished"):
    """A server call has its result; it is durable. `sandbox` says where the tool ran, if it did.

    As JSON it also has an `envelope`: the result as `ok`, `data`, `warnings` and `errors`, the same for every tool.
    """

    index: int
    call: CallItem
    result: ResultItem
    source: str = ""
    duration_s: float = 0.0
    output_bytes: int = 0
    truncated: bool = False
    sandbox: str = ""

    @property
    def envelope(self) -> Envelope:
        """Return the result in the shape that all tools share, computed on demand."""
        return envelope_of(self.result)


class ApprovalRequested(Event, frozen=True, kw_only=True, omit_defaults=True, tag="approval.requested"):
    """A call waits for a person: why, until when, and the digest of what is asked.

    `is_deferred` when the run does not wait: it ends, and the next one carries the call on.
    """

    index: int
    call: CallItem
    approval_id: str
    source: str = ""
    digest: str = ""
    reasons: tuple[str, ...] = ()
    expires_at: float = 0.0
    is_deferred: bool = False


class ApprovalDecided(Event, frozen=True, kw_only=True, omit_defaults=True, tag="approval.decided"):
    """A call may run or may not, by whose word; `arguments` are those to run with, where they were changed."""

    index: int
    call: CallItem
    approval_id: str
    status: DecisionStatus
    by: str = ""
    reason: str = ""
    arguments: str | None = None


class KeptAlive(Event, frozen=True, kw_only=True, omit_defaults=True, tag="kept_alive"):
    """Nothing happened for a while; the connection is still wanted."""


class RunEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run.ended"):
    """The run is over, exactly once, and durable."""

    status: Status
    stop: Stop = "done"
    usage: Usage | None = None
    limit: str | None = None
    error: ErrorInfo | None = None
    rounds: int = 0
    calls: int = 0
    ended_at: float = 0.0


ModelEvent = (
    ItemAdded
    | TextDelta
    | RefusalDelta
    | ReasoningDelta
    | ArgumentsDelta
    | ItemDone
    | Noted
    | RunRecovered
    | Finished
    | Failed
    | Interrupted
)
RunEvent = (
    RunStarted
    | RoundStarted
    | RoundBroken
    | RunRecovered
    | ItemAdded
    | TextDelta
    | RefusalDelta
    | ReasoningDelta
    | ArgumentsDelta
    | ItemDone
    | Noted
    | ToolStarted
    | ToolFinished
    | ApprovalRequested
    | ApprovalDecided
    | KeptAlive
    | RunEnded
)


class Batches(Protocol):
    """The events of one model call in batches, one for each read of the network. Closing it ends the call."""

    def __aiter__(self) -> AsyncIterator[list[ModelEvent]]:
        """Return the iterator."""
        ...

    def aclose(self) -> Awaitable[None]:
        """End the call."""
        ...


class LiveBatches:
    """Batches that can be handled synchronously when their bytes arrive: what `on_batch` accepts is not yielded.

    It is called only while the consumer waits for the next batch.
    """

    on_batch: Callable[[list[ModelEvent]], bool] | None = None

    async def prepare_retry(self, attempt: int) -> Noted | None:
        """Wait until a call that failed after so many attempts may be retried, and return a note on the retry.

        None if it may not be retried. The caller must not have published any event of the call.
        """
        return None


class Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """A run event with its sequence number in the journal; zero for events without an entry (deltas, keep-alives).

    `stands` is False for the provisional end that a process publishes after it lost the run: the process that recovers
    the run writes the real one, so this end is not one of the run's events.
    """

    event: RunEvent
    seq: int = 0
    stands: bool = True


def write_event(event: RunEvent) -> bytes:
    """Write an event as JSON, as readers of a run's events get it: a result with its envelope."""
    written = write_json(event)
    if type(event) is not ToolFinished:
        return written
    return b'%b,"envelope":%b}' % (written[:-1], write_json(event.envelope))


NUMBER_STEP = 2**24
"""How far event numbers jump when a run is recovered.

A process sends the deltas of a model call before they are journalled. If it dies, clients have numbers that the journal
does not; no other event may get one of them. The step is larger than the number of deltas that a model call can have:
a provider's reply is bounded, and each delta takes tens of bytes of it.
"""


class Numbering(msgspec.Struct):
    """Numbers the events of a run in order; `number` is that of the last one."""

    number: int = 0

    def take(self, event: RunEvent) -> int:
        """Return the number of the next event."""
        self.number += NUMBER_STEP + 1 if type(event) is RunRecovered else 1
        return self.number


def last_number(events: Iterable[Numbered]) -> int:
    """Return the number of the last of a run's events."""
    numbering = Numbering()
    for numbered in events:
        numbering.take(numbered.event)
    return numbering.number


_decoder: msgspec.json.Decoder[RunEvent] = msgspec.json.Decoder(RunEvent)


def is_server_call(event: RunEvent) -> bool:
    """Return whether the event adds or completes a server call, which encoders show only when it runs."""
    if type(event) is not ItemAdded and type(event) is not ItemDone:
        return False
    return type(event.item) is CallItem and event.item.side == "server"


def read_event(data: bytes | str) -> RunEvent:
    """Decode one run event from its JSON."""
    return _decoder.decode(data)
