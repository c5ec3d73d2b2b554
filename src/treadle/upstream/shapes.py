"""Stray shapes of streams, as real providers send them: from a fault's name to a change of the protocol's chunks.

A table per protocol; the arguments of a call, its id, name and index are moved, doubled or left out, never falsified,
so that a decoder that survives the shape must give the same reply as without it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from treadle.canon.json import BadJson, read_json, write_json
from treadle.upstream.endpoint import ProtocolName
from treadle.upstream.reply import Faults
from treadle.wire.sse import SseReader, write_frame

Chunk = dict[str, Any]
"""One chunk of a stream as its protocol spells it."""

_DONE = "[DONE]"


def spoil(frames: list[bytes], faults: Faults, protocol: ProtocolName) -> list[bytes]:
    """Change the frames of a stream as its faults of shape say."""
    changes = [change for name, change in SHAPES[protocol].items() if getattr(faults, name)]
    if not changes and not faults.no_done:
        return frames
    reader = SseReader()
    data = [frame.data for raw in frames for frame in reader.feed(raw)]
    chunks = [cast("Chunk", read_json(text)) for text in data if text != _DONE]
    for change in changes:
        chunks = change(chunks)
    ending = [_DONE.encode()] if _DONE in data and not faults.no_done else []
    return [write_frame(payload) for payload in [*map(write_json, chunks), *ending]]


def _calls(chunk: Chunk) -> list[Chunk]:
    """Return the call deltas of a Chat chunk."""
    deltas = [cast("Chunk", choice.get("delta", {})) for choice in chunk.get("choices", [])]
    return [call for delta in deltas for call in cast("list[Chunk]", delta.get("tool_calls") or [])]


def _each_call(change: Callable[[Chunk], object]) -> Callable[[list[Chunk]], list[Chunk]]:
    def apply(chunks: list[Chunk]) -> list[Chunk]:
        for chunk in chunks:
            for call in _calls(chunk):
                change(call)
        return chunks

    return apply


def _twice(chunks: list[Chunk]) -> list[Chunk]:
    """Repeat what carries no piece of the answer: the opening, the finish, the usage."""
    return [copy for chunk in chunks for copy in ([chunk] if _has_content(chunk) else [chunk, chunk])]


def _has_content(chunk: Chunk) -> bool:
    deltas: list[Chunk] = [choice.get("delta", {}) for choice in chunk.get("choices", [])]
    return any(value for delta in deltas for name, value in delta.items() if name != "role")


def _name_last(chunks: list[Chunk]) -> list[Chunk]:
    """Move the chunk that opens a call, with its id and name, behind the call's arguments."""
    spoiled: list[Chunk] = []
    held: list[Chunk] = []
    for chunk in chunks:
        functions = [cast("Chunk", call["function"]) for call in _calls(chunk)]
        is_opening = any(function.get("name") for function in functions)
        if is_opening or not functions:
            spoiled += held
            held = []
        if is_opening:
            assert not any(function.get("arguments") for function in functions), "a call is opened before it is filled"
            held = [chunk]
        else:
            spoiled.append(chunk)
    return spoiled + held


def _object_arguments(chunks: list[Chunk]) -> list[Chunk]:
    """Send each call in one piece, its arguments as a JSON object where they are one."""
    spoiled: list[Chunk] = []
    functions: list[Chunk] = []
    for chunk in chunks:
        pieces = [cast("Chunk", call["function"]) for call in _calls(chunk)]
        opened = [piece for piece in pieces if piece.get("name")]
        functions += opened
        if opened or not pieces:
            spoiled.append(chunk)
        else:
            functions[-1]["arguments"] += "".join(piece["arguments"] for piece in pieces)
    for function in functions:
        with suppress(BadJson):
            function["arguments"] = read_json(function["arguments"])
    return spoiled


def _empty_last(chunks: list[Chunk]) -> list[Chunk]:
    """Add a last chunk without choices and without usage."""
    return [*chunks, {**chunks[-1], "choices": [], "usage": None}]


SHAPES: dict[ProtocolName, dict[str, Callable[[list[Chunk]], list[Chunk]]]] = {
    "chat": {
        "args_as_object": _object_arguments,
        "name_after_args": _name_last,
        "index_zero": _each_call(lambda call: call.update(index=0)),
        "no_index": _each_call(lambda call: call.pop("index", None)),
        "no_id": _each_call(lambda call: call.pop("id", None)),
        "dup_chunk": _twice,
        "empty_final": _empty_last,
    }
}
