"""Encodes scripted replies as a provider would: events through the protocol's own encoder.

It only returns bytes; sending, cutting off and stalling is done by the caller.
"""

import re
from collections.abc import Iterator

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    Status,
    Stop,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.items import AnyPart, CallItem, MessageItem, ReasoningItem, RefusalPart, TextPart
from treadle.core.json import members_of, write_json
from treadle.core.request import Request, Surface
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.error_envelopes import write_error
from treadle.protocols.protocol_registry import CHAT, MESSAGES, PROTOCOLS, ProtocolName
from treadle.protocols.translation.adapt_plan import Adapted
from treadle.protocols.translation.custom_tools import wrapped_input
from treadle.providers.fakes.scripted_reply import Faults, Reply, ReplyCall
from treadle.providers.fakes.stream_faults import spoil

ARGUMENTS_PIECE_CHARS = 12
_WORD = re.compile(r"\s*\S+\s*|\s+")
_STATUS_OF_STOP: dict[Stop, Status] = {"length": "incomplete", "filtered": "incomplete", "calls": "requires_action"}


def write_frames(
    reply: Reply, *, model: str, protocol: ProtocolName = CHAT, tools: tuple[ToolSpec, ...] = ()
) -> list[bytes]:
    """Encode the reply as the frames of a stream, with its shape faults; `tools` are those offered to the model."""
    surface = Surface(stream=True, include_usage=True)
    request = Request(protocol=protocol, model=model, surface=surface, tools=tools)
    encoder = PROTOCOLS[protocol].codec.encoder(request, CountingIds(namespace="u"))
    encodable, malformed = _marked(reply) if protocol == MESSAGES else (reply, {})
    frames = [frame for event in events_of(encodable, model) for frame in encoder.feed(event)]
    for mark, text in malformed.items():
        # The encoder sends the closing brace in a separate frame.
        at = next(number for number, frame in enumerate(frames) if write_json(mark[:-1])[1:-1] in frame)
        frames[at : at + 2] = [frames[at].replace(write_json(mark[:-1])[1:-1], write_json(text)[1:-1])]
    return spoil(frames, reply.faults, protocol)


def _marked(reply: Reply) -> tuple[Reply, dict[str, str]]:
    """Replace arguments that are not an object by marks: providers stream such text, but our encoder refuses it."""
    malformed: dict[str, str] = {}
    calls: list[ReplyCall] = []
    for number, call in enumerate(reply.calls):
        # Short enough for one frame.
        mark = f'{{"~{number}":0}}'
        is_object = not call.arguments.strip() or members_of(call.arguments.encode()) is not None
        if not is_object:
            malformed[mark] = call.arguments
        calls.append(call if is_object else msgspec.structs.replace(call, raw=mark))
    return msgspec.structs.replace(reply, calls=tuple(calls)), malformed


def write_body(reply: Reply, *, model: str, protocol: ProtocolName = CHAT, tools: tuple[ToolSpec, ...] = ()) -> bytes:
    """Encode the reply as one complete response."""
    request = Request(protocol=protocol, model=model, tools=tools)
    encoder = PROTOCOLS[protocol].codec.encoder(request, CountingIds(namespace="u"))
    for event in events_of(reply, model):
        encoder.feed(event)
    return encoder.body()


def sent_reply(reply: Reply, adapted: Adapted) -> Reply:
    """Return the reply as a model would give it to the adapted plan, with the tool names and kinds of that plan."""
    return msgspec.structs.replace(reply, calls=tuple(_sent_call(call, adapted) for call in reply.calls))


def _sent_call(call: ReplyCall, adapted: Adapted) -> ReplyCall:
    raw = call.raw
    if call.name in adapted.wrapped and raw is not None:
        raw = wrapped_input(raw)
    return msgspec.structs.replace(call, name=adapted.names.there(call.name), raw=raw)


def write_refusal(faults: Faults, protocol: ProtocolName = CHAT) -> tuple[dict[str, str], bytes]:
    """Encode the fault `status` as the headers and body of an error response."""
    error = ErrorInfo(code=faults.code or "scripted", message=faults.message, status=faults.status or 500)
    headers = {"content-type": "application/json"}
    if faults.retry_after_s is not None:
        headers["retry-after"] = f"{faults.retry_after_s:g}"
    return headers, write_error(protocol, error)


def cut(data: bytes, chunk_bytes: int | None) -> list[bytes]:
    """Cut the bytes into network reads of this size; None leaves them whole."""
    size = chunk_bytes or max(1, len(data))
    return [data[start : start + size] for start in range(0, len(data), size)]


def events_of(reply: Reply, model: str) -> list[RunEvent]:
    """Return the reply as the events of a run with one model call."""
    ids = CountingIds(namespace="r")
    events: list[RunEvent] = [RunStarted(run_id=ids.new("run"), response_id=ids.new("resp"), model=model, created_at=0)]
    index = 0
    for item in (*_reasoning(reply, ids), *_message(reply, ids)):
        events += _item_events(index, item)
        index += 1
    for call in reply.calls:
        events += _call_events(index, call, ids)
        index += 1
    stop = reply.finish or ("calls" if reply.calls else "done")
    events.append(RunEnded(status=_STATUS_OF_STOP.get(stop, "completed"), stop=stop, usage=reply.usage, rounds=1))
    return events


def _reasoning(reply: Reply, ids: CountingIds) -> Iterator[ReasoningItem]:
    if reply.reasoning:
        yield ReasoningItem(id=ids.new("rs"), text=(reply.reasoning,))


def _message(reply: Reply, ids: CountingIds) -> Iterator[MessageItem]:
    parts: list[AnyPart] = []
    if reply.text:
        parts.append(TextPart(text=reply.text))
    if reply.refusal:
        parts.append(RefusalPart(text=reply.refusal))
    if parts or not (reply.calls or reply.reasoning):
        yield MessageItem(id=ids.new("msg"), role="assistant", content=tuple(parts))


def _item_events(index: int, item: ReasoningItem | MessageItem) -> Iterator[RunEvent]:
    if isinstance(item, ReasoningItem):
        yield ItemAdded(index=index, item=msgspec.structs.replace(item, text=()))
        yield from (ReasoningDelta(index=index, text=word) for word in _WORD.findall("".join(item.text)))
    else:
        yield ItemAdded(index=index, item=msgspec.structs.replace(item, content=()))
        for number, part in enumerate(item.content):
            assert isinstance(part, TextPart | RefusalPart)
            delta = TextDelta if isinstance(part, TextPart) else RefusalDelta
            yield from (delta(index=index, text=word, part=number) for word in _WORD.findall(part.text))
    yield ItemDone(index=index, item=item)


def _call_events(index: int, call: ReplyCall, ids: CountingIds) -> Iterator[RunEvent]:
    text = call.arguments
    item = CallItem(id=ids.new("fc"), call_id=call.id or ids.new("call"), name=call.name)
    yield ItemAdded(index=index, item=item)
    for start in range(0, len(text), ARGUMENTS_PIECE_CHARS):
        yield ArgumentsDelta(index=index, text=text[start : start + ARGUMENTS_PIECE_CHARS])
    yield ItemDone(index=index, item=msgspec.structs.replace(item, arguments=text))
