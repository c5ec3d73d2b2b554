"""Damage: what can happen to the bytes of an upstream's answer, and what may come of it.

A second reader, as simple as can be, says what damaged bytes still say: where it cannot read them, nothing may be made
of them; where it can, nothing else may be made of them than what it read or what was meant.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from stream import gemini_shapes as gemini
from stream import messages_shapes as messages
from stream import responses_shapes as responses
from stream import shapes as chat
from stream.answers import decode
from treadle.core.events import Failed, Finished, ItemDone, ModelEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem
from treadle.protocols.protocol_registry import PROTOCOLS

Call = tuple[str, str]
"""The name and the arguments of a call."""

EMAIL = '{"to":"ann@example.com","subject":"Café","send":true}'
PIECES = ('{"to":"ann', "@exam", 'ple.com","subject":"Caf', 'é","se', 'nd":true}')
_HALVES = (chat.PARIS[:5], chat.PARIS[5:])
FIELDS = frozenset({"", "data", "event", "id", "retry"})


class Said(msgspec.Struct, frozen=True):
    """What an answer amounts to: its text, its calls, and whether it ended well."""

    text: str
    calls: tuple[Call, ...]
    is_whole: bool


class Damaged(msgspec.Struct, frozen=True):
    """A stream after some damage to it."""

    kind: str
    place: int
    body: bytes


class Recorded(msgspec.Struct, frozen=True):
    """An answer as an upstream of a protocol sends it, as a stream or in one document, and what it means."""

    protocol: str
    name: str
    body: bytes
    text: str
    calls: tuple[Call, ...]

    @property
    def is_document(self) -> bool:
        return self.body.startswith(b"{")


def heard(protocol: str, body: bytes, size: int = 1 << 30) -> Said:
    """Return what Treadle makes of a stream."""
    return said(decode(PROTOCOLS[protocol].codec.decoder(CountingIds()), body, size))  # type: ignore[arg-type]


def said(events: list[ModelEvent]) -> Said:
    """Return what events amount to: the text as it was told, the calls that were said to be done."""
    assert isinstance(events[-1], Finished | Failed)
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return Said(
        "".join(event.text for event in events if isinstance(event, TextDelta)),
        tuple((item.name, item.arguments) for item in items if isinstance(item, CallItem)),
        isinstance(events[-1], Finished),
    )


def wrong(stream: Recorded, damaged: Damaged, size: int = 1 << 30) -> str:
    """Say what is wrong about what Treadle makes of a damaged stream; nothing where all is as it must be."""
    return misread(stream, damaged, heard(stream.protocol, damaged.body, size))


def misread(stream: Recorded, damaged: Damaged, got: Said) -> str:
    """Say what is wrong about an answer that was got from a damaged stream; nothing where all is as it must be."""
    frames = read(damaged.body)
    if frames and frames[0]["type"] == DOCUMENT:
        return _misread_document(stream, frames[0], got)
    # In Responses white space around a text may differ between its pieces and its whole.
    is_meant = (got.text.strip(), got.calls) == (stream.text.strip(), stream.calls)
    if frames is None or stream.protocol == "responses":
        # What cannot be read, or what contradicts itself, ends no answer well unless nothing of it was lost.
        if got.is_whole and not is_meant:
            return f"ended well with {got}"
        if frames is None and not stream.text.startswith(got.text):
            return f"told {got.text!r}"
        return "" if all(call in stream.calls for call in got.calls) else f"called {got.calls}"
    # Whole frames are gone, doubled or in another order, or say something else: only what they say may be believed.
    text, calls = READERS[stream.protocol](frames)
    if got.text not in (text, stream.text) and not (text.startswith(got.text) and not got.is_whole):
        return f"told {got.text!r} of {text!r}"
    strange = [call for call in got.calls if call not in stream.calls and call not in calls]
    return f"called {strange} of {calls}" if strange else ""


def _misread_document(stream: Recorded, document: dict[str, Any], got: Said) -> str:
    """Say what is wrong about an answer that came whole: what is in it now is all there is."""
    text, calls = DOCUMENTS[stream.protocol](document)
    if got.is_whole and got.text not in (text, stream.text):
        return f"told {got.text!r} of {text!r}"
    strange = [call for call in got.calls if call not in stream.calls and call not in calls]
    return f"called {strange} of {calls}" if strange else ""


DOCUMENT = "a document"


def read(body: bytes) -> list[dict[str, Any]] | None:
    """Return the frames of a stream, each by the kind that it says or is called; None where any cannot be read.

    A document that can be read is the only frame.
    """
    if body[:1] == b"{":
        try:
            return [{**json.loads(body), "type": DOCUMENT}]
        except ValueError:
            return None
    try:
        lines = body.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except UnicodeDecodeError:
        return None
    frames: list[dict[str, Any]] = []
    data: list[str] = []
    called = ""
    for line in [*lines, ""]:
        name, _, value = line.partition(":")
        if line.strip() and name not in FIELDS:
            return None
        if name == "event":
            called = value.removeprefix(" ")
        elif name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            text, data = "\n".join(data).strip(), []
            if text not in ("", "[DONE]"):
                try:
                    frames.append(json.loads(text))
                except ValueError:
                    return None
                if not isinstance(frames[-1], dict):
                    return None
                frames[-1].setdefault("type", called)
        called = called if line else ""
    return frames


def _read_chat(frames: list[dict[str, Any]]) -> tuple[str, list[Call]]:
    texts: list[str] = []
    calls: dict[Any, list[str]] = {}
    for choice in [choice for frame in frames for choice in frame.get("choices") or ()]:
        delta = choice.get("delta") or {}
        texts.append(delta.get("content") or "")
        for piece in delta.get("tool_calls") or ():
            body = piece.get("function") or {}
            call = calls.setdefault(piece.get("index"), ["", ""])
            call[0] = call[0] or body.get("name") or ""
            call[1] += "" if body.get("arguments", "") is None else _given({"arguments": "", **body}, "arguments")
            call[1] += LOST if "arguments" not in body and not body.keys() <= _KNOWN else ""
    return "".join(texts), [(name, arguments or "{}") for name, arguments in calls.values()]


def _read_messages(frames: list[dict[str, Any]]) -> tuple[str, list[Call]]:
    texts: list[str] = []
    calls: list[list[str]] = []
    at: dict[Any, list[str]] = {}
    speaking: set[Any] = set()
    for frame in frames:
        kind, index = frame["type"], frame.get("index")
        block, delta = frame.get("content_block") or {}, frame.get("delta") or {}
        if kind == "content_block_start" and block.get("type") == "tool_use":
            calls.append([block.get("name") or "", "", _given(block, "input")])
            at[index] = calls[-1]
        elif kind == "content_block_start" and block.get("type") == "text":
            speaking.add(index)
            texts.append(block.get("text") or "")
        elif kind == "content_block_delta" and delta.get("type") == "text_delta" and index in speaking:
            texts.append(delta.get("text") or "")
        elif kind == "content_block_delta" and delta.get("type") == "input_json_delta" and index in at:
            at[index][1] += delta.get("partial_json") or ""
    return "".join(texts), [(name, arguments or given) for name, arguments, given in calls]


def _read_gemini(frames: list[dict[str, Any]]) -> tuple[str, list[Call]]:
    texts: list[str] = []
    calls: list[Call] = []
    candidates = [candidate for frame in frames for candidate in frame.get("candidates") or ()]
    for part in [part for each in candidates for part in (each.get("content") or {}).get("parts") or ()]:
        texts.append(part.get("text") or "")
        call = part.get("functionCall")
        if call is not None:
            calls.append((call.get("name") or "", _given(call, "args")))
    return "".join(texts), calls


LOST = "lost"
"""The arguments of a call that has none, and a field that nobody knows: they may stand there."""

_KNOWN = frozenset({"type", "id", "call_id", "name", "arguments", "input", "args", "status", "index"})


def _given(body: dict[str, Any], name: str) -> str:
    """Return the arguments of a call, in a field of this name."""
    if name not in body and not body.keys() <= _KNOWN:
        return LOST
    value = body.get(name)
    return value if isinstance(value, str) else json.dumps(value or {}, separators=(",", ":"), ensure_ascii=False)


def _list(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _chat_document(document: dict[str, Any]) -> tuple[str, list[Call]]:
    message = _object(next(iter(_list(document.get("choices"))), {}).get("message"))
    bodies = [_object(call.get("function")) for call in _list(message.get("tool_calls"))]
    return message.get("content") or "", [(body.get("name", ""), _given(body, "arguments")) for body in bodies]


def _messages_document(document: dict[str, Any]) -> tuple[str, list[Call]]:
    blocks = _list(document.get("content"))
    calls = [(block.get("name", ""), _given(block, "input")) for block in blocks if block.get("type") == "tool_use"]
    return "".join(block.get("text") or "" for block in blocks if block.get("type") == "text"), calls


def _responses_document(document: dict[str, Any]) -> tuple[str, list[Call]]:
    """Read what Treadle knows: items and parts of other types are carried as they are, whatever is in them."""
    items = _list(document.get("output"))
    spoken = [item for item in items if item.get("type", "message") == "message"]
    parts = [part for item in spoken for part in _list(item.get("content")) if part.get("type") == "output_text"]
    called = [item for item in items if item.get("type", "function_call") == "function_call"]
    calls = [(item.get("name", ""), _given(item, "arguments")) for item in called]
    return "".join(part.get("text") or "" for part in parts), calls


def _gemini_document(document: dict[str, Any]) -> tuple[str, list[Call]]:
    return _read_gemini([document])


DOCUMENTS: dict[str, Callable[[dict[str, Any]], tuple[str, list[Call]]]] = {
    "chat": _chat_document,
    "messages": _messages_document,
    "responses": _responses_document,
    "gemini": _gemini_document,
}

READERS: dict[str, Callable[[list[dict[str, Any]]], tuple[str, list[Call]]]] = {
    "chat": _read_chat,
    "messages": _read_messages,
    "gemini": _read_gemini,
}


def _chat() -> Iterator[tuple[str, bytes]]:
    call, calls, text, end = chat.call, chat.calls, chat.text, chat.finish
    mail = [calls(call(0, "call_m", "send_mail", "")), *[calls(call(0, args=piece)) for piece in PIECES]]
    more = [calls(call(1, "call_w", "get_weather", "")), *[calls(call(1, args=piece)) for piece in _HALVES]]
    talk = [text("Let me "), text("write, né "), text("to Ann.")]
    yield "text", chat.stream(*talk, end("stop"), chat.DONE)
    yield "text_and_calls", chat.stream(*talk, *mail, *more, end("tool_calls"), chat.DONE)
    yield "call", chat.stream(*mail, end("tool_calls"), chat.chunk(usage=chat.USAGE), chat.DONE)


def _messages() -> Iterator[tuple[str, bytes]]:
    talk = messages.said(0, "Let me ", "write, né ", "to Ann.")
    mail, more = (messages.called(n, f"toolu_{n}", name, *pieces) for n, name, pieces in _CALLED)
    yield "text", messages.stream(messages.begin(), *talk, {"type": "ping"}, *messages.end())
    yield "text_and_calls", messages.stream(messages.begin(), *talk, *mail, *more, *messages.end("tool_use"))


_CALLED = ((1, "send_mail", PIECES), (2, "get_weather", _HALVES))


def _responses() -> Iterator[tuple[str, bytes]]:
    text = "Let me write, né to Ann."
    mail = responses.call(EMAIL, "fc_m", "call_m", "send_mail")
    talk = responses.said(text)
    whole = (responses.message(text), mail, responses.A)
    yield "text", responses.frames(*responses.CREATED, *talk, responses.completed(responses.message(text)))
    yield (
        "text_and_calls",
        responses.frames(
            *responses.CREATED,
            *talk,
            *responses.called(mail, 1),
            *responses.called(responses.A, 2),
            responses.completed(*whole),
        ),
    )


def _gemini() -> Iterator[tuple[str, bytes]]:
    talk = [gemini.text("Let me "), gemini.text("write, né "), gemini.text("to Ann.")]
    mail = gemini.chunk(gemini.call("send_mail", json.loads(EMAIL), "call_m"))
    more = gemini.chunk(gemini.call("get_weather", {"city": "Paris"}, "call_w"))
    yield "text", gemini.stream(*talk, gemini.end(usageMetadata=gemini.USAGE))
    yield "text_and_calls", gemini.stream(*talk, mail, more, gemini.end())


TALK = "Let me write, né to Ann."
_MAIL = {"name": "send_mail", "arguments": EMAIL}
_WEATHER = {"name": "get_weather", "arguments": chat.PARIS}
WHOLE: dict[str, dict[str, Any]] = {
    "chat": {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": TALK,
                    "tool_calls": [
                        {"id": "call_m", "type": "function", "function": _MAIL},
                        {"id": "call_w", "type": "function", "function": _WEATHER},
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": chat.USAGE,
    },
    "messages": {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "text", "text": TALK},
            {"type": "tool_use", "id": "toolu_1", "name": "send_mail", "input": json.loads(EMAIL)},
            {"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {"city": "Paris"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 5},
    },
    "responses": responses.response(
        "completed", [responses.message(TALK), responses.call(EMAIL, "fc_m", "call_m", "send_mail"), responses.A]
    ),
    "gemini": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": TALK},
                        gemini.call("send_mail", json.loads(EMAIL), "call_m"),
                        gemini.call("get_weather", {"city": "Paris"}, "call_w"),
                    ],
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": gemini.USAGE,
    },
}
"""The same answers in one document."""


def recorded() -> list[Recorded]:
    """Return the streams and documents that are damaged, each with what it means."""
    makers = {"chat": _chat, "messages": _messages, "responses": _responses, "gemini": _gemini}
    found: list[Recorded] = []
    for protocol, make in makers.items():
        whole = json.dumps(WHOLE[protocol], ensure_ascii=False).encode()
        for name, body in (*make(), ("whole", whole)):
            meant = heard(protocol, body)
            assert meant.is_whole
            found.append(Recorded(protocol, name, body, meant.text, meant.calls))
    return found


def _frames(body: bytes) -> list[bytes]:
    mark = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    return [frame + mark for frame in body.split(mark) if frame]


def frame_damages(body: bytes, dice: random.Random) -> Iterator[Damaged]:
    """Yield the stream with each of its frames lost, doubled, swapped, last, merged, garbled or replaced."""
    frames = _frames(body)
    for at, frame in enumerate(frames):
        before, after = frames[:at], frames[at + 1 :]
        size = len(frame) - len(frame.rstrip())
        bare, mark = frame[:-size], frame[-size:]
        changed: dict[str, list[bytes]] = {
            "drop": [*before, *after],
            "duplicate": [*before, frame, frame, *after],
            "truncate": before,
            "halve": [*before, bare[: len(bare) // 2] + mark, *after],
            "plain_text": [*before, b"upstream overloaded" + mark, *after],
            "plain_error": [*before, b"event: error\ndata: overloaded" + mark, *after],
            "detail": [*before, b'data: {"detail":"overloaded"}' + mark, *after],
            "list": [*before, b"data: [1]" + mark, *after],
            "not_utf8": [*before, bare[:-3] + b"\xff" + bare[-2:] + mark, *after],
        }
        if after:
            changed["swap"] = [*before, after[0], frame, *after[1:]]
            data = after[0][after[0].index(b"data:") + 5 :]
            changed["merge_line"] = [*before, bare + data, *after[1:]]
            changed["merge_frame"] = [*before, bare + mark[: len(mark) // 2], *after]
        for kind, made in changed.items():
            yield Damaged(kind, at, b"".join(made))
        place = dice.randrange(len(bare))
        garbled = bare[:place] + dice.randbytes(3) + bare[place + 3 :] + mark
        yield Damaged("garble", at, b"".join([*before, garbled, *after]))


def byte_damages(body: bytes, places: Iterable[int], dice: random.Random) -> Iterator[Damaged]:
    """Yield the stream with a byte lost, another one or one too many at each of these places, or cut there."""
    for at in places:
        other = dice.randrange(256)
        yield Damaged("cut", at, body[:at])
        yield Damaged("drop_byte", at, body[:at] + body[at + 1 :])
        yield Damaged("change_byte", at, body[:at] + bytes([other]) + body[at + 1 :])
        yield Damaged("insert_byte", at, body[:at] + bytes([other]) + body[at:])
