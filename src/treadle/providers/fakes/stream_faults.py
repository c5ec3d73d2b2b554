"""Shape faults of streams, as real providers send them: for each fault, a function that changes a protocol's chunks.

There is a table per protocol. The arguments, id, name and index of a call are moved, repeated or left out, never
changed, so a decoder that handles the fault must return the same reply as without it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from treadle.core.json import BadJson, read_json, write_json
from treadle.protocols.protocol_registry import CHAT, GEMINI, MESSAGES, PROTOCOLS, RESPONSES, ProtocolName
from treadle.protocols.sse import SseReader, write_frame
from treadle.providers.fakes.scripted_reply import Faults

Chunk = dict[str, Any]
"""One decoded chunk of a stream in its protocol."""

_DONE = "[DONE]"


def spoil(frames: list[bytes], faults: Faults, protocol: ProtocolName) -> list[bytes]:
    """Apply the shape faults to the frames of a stream; faults that its protocol cannot have are ignored."""
    changes = [change for name, change in SHAPES.get(protocol, {}).items() if getattr(faults, name)]
    ends_early = faults.no_done and protocol == CHAT
    if not changes and not ends_early:
        return frames
    reader = SseReader()
    data = [frame.data for raw in frames for frame in reader.feed(raw)]
    chunks = [cast("Chunk", read_json(text)) for text in data if text != _DONE]
    for change in changes:
        chunks = change(chunks)
    if PROTOCOLS[protocol].has_sequence_numbers:
        # A provider with this fault numbers the events it really sends.
        chunks = [{**chunk, "sequence_number": number} for number, chunk in enumerate(chunks)]
    is_named = protocol in (RESPONSES, MESSAGES)
    written = [write_frame(write_json(chunk), event=str(chunk["type"]) if is_named else None) for chunk in chunks]
    return [*written, write_frame(_DONE.encode())] if _DONE in data and not ends_early else written


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


def _repeat_empty(chunks: list[Chunk]) -> list[Chunk]:
    """Repeat the chunks without content: the opening, the finish, the usage."""
    return [copy for chunk in chunks for copy in ([chunk] if _has_content(chunk) else [chunk, chunk])]


def _has_content(chunk: Chunk) -> bool:
    deltas: list[Chunk] = [choice.get("delta", {}) for choice in chunk.get("choices", [])]
    return any(value for delta in deltas for name, value in delta.items() if name != "role")


def _name_last(chunks: list[Chunk]) -> list[Chunk]:
    """Move the chunk that opens a call, with its id and name, after the call's arguments."""
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
    """Send each call in one chunk, with its arguments as a JSON object if they are one."""
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


def _each(change: Callable[[Chunk], object]) -> Callable[[list[Chunk]], list[Chunk]]:
    def apply(chunks: list[Chunk]) -> list[Chunk]:
        for chunk in chunks:
            change(chunk)
        return chunks

    return apply


def _repeat_types(*kinds: str) -> Callable[[list[Chunk]], list[Chunk]]:
    """Repeat events of these types."""

    def apply(chunks: list[Chunk]) -> list[Chunk]:
        return [copy for chunk in chunks for copy in ([chunk, chunk] if chunk["type"] in kinds else [chunk])]

    return apply


def _set_field(name: str, value: object) -> Callable[[list[Chunk]], list[Chunk]]:
    """Set a field in all chunks that have it."""
    return _each(lambda chunk: chunk.update({name: value}) if name in chunk else None)


def _remove_field(name: str) -> Callable[[list[Chunk]], list[Chunk]]:
    return _each(lambda chunk: chunk.pop(name, None))


def _items(chunk: Chunk) -> list[Chunk]:
    """Return the items in a Responses event."""
    whole = cast("Chunk", chunk.get("response", {})).get("output", [])
    return [item for item in (chunk.get("item"), *cast("list[Chunk]", whole)) if item is not None]


def _object_items(chunks: list[Chunk]) -> list[Chunk]:
    """Send the arguments of function calls without deltas, as a JSON object if they are one."""
    remaining = [chunk for chunk in chunks if chunk["type"] != "response.function_call_arguments.delta"]
    for chunk in remaining:
        for holder in (chunk, *_items(chunk)):
            if isinstance(holder.get("arguments"), str):
                with suppress(BadJson):
                    holder["arguments"] = read_json(holder["arguments"])
    return remaining


def _added_last(chunks: list[Chunk]) -> list[Chunk]:
    """Move the event that opens a function call after the deltas of its arguments."""
    spoiled: list[Chunk] = []
    held: list[Chunk] = []
    for chunk in chunks:
        if chunk["type"] != "response.function_call_arguments.delta":
            spoiled += held
            held = []
        if chunk["type"] == "response.output_item.added" and chunk["item"]["type"] == "function_call":
            held = [chunk]
        else:
            spoiled.append(chunk)
    return spoiled + held


def _empty_output(chunks: list[Chunk]) -> list[Chunk]:
    """Remove the output from the last event's response."""
    for chunk in chunks:
        if chunk["type"] == "response.completed":
            chunk["response"]["output"] = []
    return chunks


def _whole_input(chunks: list[Chunk]) -> list[Chunk]:
    """Send the input of a tool in the start of its block, if it is an object."""
    spoiled: list[Chunk] = []
    opening: Chunk | None = None
    pieces: list[Chunk] = []
    for chunk in chunks:
        if chunk["type"] == "content_block_delta" and chunk["delta"]["type"] == "input_json_delta":
            pieces.append(chunk)
            continue
        if chunk["type"] == "content_block_stop" and opening is not None:
            text = "".join(piece["delta"]["partial_json"] for piece in pieces)
            try:
                opening["content_block"]["input"] = read_json(text) if text else {}
            except BadJson:
                spoiled += pieces
            opening, pieces = None, []
        if chunk["type"] == "content_block_start" and chunk["content_block"]["type"] == "tool_use":
            opening = chunk
        spoiled.append(chunk)
    return spoiled


def _last_ping(chunks: list[Chunk]) -> list[Chunk]:
    return [*chunks[:-1], {"type": "ping"}, chunks[-1]]


def _parts(chunk: Chunk) -> list[Chunk]:
    """Return the parts of a Gemini chunk."""
    contents = [cast("Chunk", candidate.get("content", {})) for candidate in chunk.get("candidates", [])]
    return [part for content in contents for part in cast("list[Chunk]", content.get("parts", []))]


def _repeat_without_parts(chunks: list[Chunk]) -> list[Chunk]:
    """Repeat the chunks without content: the finish, which has at most an empty text."""
    return [copy for chunk in chunks for copy in ([chunk] if _has_parts(chunk) else [chunk, chunk])]


def _has_parts(chunk: Chunk) -> bool:
    return any(part != {"text": ""} for part in _parts(chunk))


SHAPES: dict[ProtocolName, dict[str, Callable[[list[Chunk]], list[Chunk]]]] = {
    CHAT: {
        "args_as_object": _object_arguments,
        "name_after_args": _name_last,
        "index_zero": _each_call(lambda call: call.update(index=0)),
        "no_index": _each_call(lambda call: call.pop("index", None)),
        "no_id": _each_call(lambda call: call.pop("id", None)),
        "dup_chunk": _repeat_empty,
        "empty_final": _empty_last,
    },
    RESPONSES: {
        "args_as_object": _object_items,
        "name_after_args": _added_last,
        "index_zero": _set_field("output_index", 0),
        "no_index": _remove_field("output_index"),
        "no_id": _each(lambda chunk: [item.pop("call_id", None) for item in _items(chunk)]),
        "dup_chunk": _repeat_types("response.created", "response.in_progress"),
        "empty_final": _empty_output,
    },
    MESSAGES: {
        "args_as_object": _whole_input,
        "index_zero": _set_field("index", 0),
        "no_index": _remove_field("index"),
        "no_id": _each(lambda chunk: cast("Chunk", chunk.get("content_block", {})).pop("id", None)),
        "dup_chunk": _repeat_types("message_start", "message_delta"),
        "empty_final": _last_ping,
        "no_done": lambda chunks: [chunk for chunk in chunks if chunk["type"] != "message_stop"],
    },
    GEMINI: {
        "no_id": _each(
            lambda chunk: [cast("Chunk", part.get("functionCall", {})).pop("id", None) for part in _parts(chunk)]
        ),
        "dup_chunk": _repeat_without_parts,
        "empty_final": lambda chunks: [*chunks, {"candidates": []}],
    },
}
