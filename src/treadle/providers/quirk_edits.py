"""Edits of a written Chat body for single providers: fields left out or renamed, messages rearranged.

Each edit of messages is a function from messages to messages, found by its name. Anything of the client's request that
is left out is returned as a note. Fields that no edit touches keep their bytes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from treadle.core.json import write_json
from treadle.protocols.codec_interfaces import WrittenRequest
from treadle.protocols.translation_notes import Notes

Message = dict[str, msgspec.Raw]
Edit = Callable[[list[Message], Notes], list[Message]]

_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MESSAGES: msgspec.json.Decoder[list[Message]] = msgspec.json.Decoder(list[Message])
_CALLS: msgspec.json.Decoder[list[dict[str, Any]]] = msgspec.json.Decoder(list[dict[str, Any]])
_TEXT: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)

_ASSISTANT = msgspec.Raw(b'"assistant"')
_EMPTY = msgspec.Raw(b'""')
_CALLS_NAME = "tool_calls"
_THOUGHTS = "reasoning_content"


class BodyEdits(msgspec.Struct, frozen=True, kw_only=True):
    """The edits of a body: fields to drop with a note, to omit without one, to rename, and edits of messages."""

    drops: tuple[str, ...] = ()
    omits: tuple[str, ...] = ()
    renames: Mapping[str, str] = {}
    messages: tuple[str, ...] = ()


NO_EDITS = BodyEdits()


def edit_body(written: WrittenRequest, edits: BodyEdits) -> WrittenRequest:
    """Return the edited request, with a note for everything that was lost."""
    if edits == NO_EDITS:
        return written
    notes = Notes()
    body = _OBJECT.decode(written.body)
    for name in edits.drops:
        if body.pop(name, None) is not None:
            notes.add("field_refused", "dropped", f"the upstream does not take {name}", name)
    for name in edits.omits:
        body.pop(name, None)
    renamed = {edits.renames.get(name, name): value for name, value in body.items()}
    if edits.messages and "messages" in renamed:
        messages = _MESSAGES.decode(renamed["messages"])
        for name in edits.messages:
            messages = EDITS[name](messages, notes)
        renamed["messages"] = msgspec.Raw(write_json(messages))
    return WrittenRequest(body=write_json(renamed), notes=(*written.notes, *notes.all()), headers=written.headers)


def _role(message: Message) -> str:
    return _TEXT.decode(message.get("role", _EMPTY))


def _fill_content(messages: list[Message], notes: Notes) -> list[Message]:
    """Write an empty text where an assistant message with calls has null."""
    for message in messages:
        if _role(message) == "assistant" and bytes(message.get("content", b"null")) == b"null":
            message["content"] = _EMPTY
    return messages


def _name_results(messages: list[Message], notes: Notes) -> list[Message]:
    """Give each tool message the name of the function that was called."""
    names: dict[str, str] = {}
    for message in messages:
        for call in _calls(message):
            names[str(call.get("id"))] = str(call.get("function", {}).get("name", ""))
        if _role(message) == "tool":
            name = names.get(_TEXT.decode(message.get("tool_call_id", _EMPTY)))
            if name:
                message.setdefault("name", msgspec.Raw(write_json(name)))
    return messages


def _drop_names(messages: list[Message], notes: Notes) -> list[Message]:
    """Leave out the names of speakers."""
    for message in messages:
        if message.pop("name", None) is not None:
            notes.add("field_refused", "dropped", "the upstream does not take names of messages", "messages.name")
    return messages


def _drop_thoughts(messages: list[Message], notes: Notes) -> list[Message]:
    """Leave out the reasoning of earlier turns."""
    for message in messages:
        if message.pop(_THOUGHTS, None) is not None:
            notes.add("reasoning_dropped", "dropped", "the upstream does not take reasoning back", "messages.reasoning")
    return messages


def _echo_thoughts(messages: list[Message], notes: Notes) -> list[Message]:
    """Give every assistant message with calls its reasoning, even if that is empty."""
    for message in messages:
        if _CALLS_NAME in message:
            message.setdefault(_THOUGHTS, _EMPTY)
    return messages


def _choose_thoughts(messages: list[Message], notes: Notes) -> list[Message]:
    """Leave out the reasoning of a message that has both text and calls."""
    for message in messages:
        has_text = bytes(message.get("content", b"null")) not in (b"null", b'""', b"[]")
        if has_text and _CALLS_NAME in message and message.pop(_THOUGHTS, None) is not None:
            text = "reasoning beside text and calls cannot be given back"
            notes.add("reasoning_dropped", "dropped", text, "messages.reasoning")
    return messages


def _pair_calls(messages: list[Message], notes: Notes) -> list[Message]:
    """Give each call an assistant message of its own, directly before its result."""
    paired: list[Message] = []
    waiting: dict[str, Message] = {}
    for message in messages:
        calls = _calls(message)
        if len(calls) > 1:
            paired += waiting.values()
            waiting = {str(call.get("id")): _with_one_call(message, call, place) for place, call in enumerate(calls)}
            continue
        if _role(message) == "tool":
            owner = waiting.pop(_TEXT.decode(message.get("tool_call_id", _EMPTY)), None)
            paired += [owner, message] if owner is not None else [message]
            continue
        paired += waiting.values()
        waiting = {}
        paired.append(message)
    return [*paired, *waiting.values()]


def _with_one_call(message: Message, call: dict[str, Any], place: int) -> Message:
    """Return the message with one of its calls; its text stays with the first call."""
    calls = {_CALLS_NAME: msgspec.Raw(write_json([call]))}
    return {**message, **calls} if place == 0 else {"role": _ASSISTANT, "content": _EMPTY, **calls}


def _bridge_results(messages: list[Message], notes: Notes) -> list[Message]:
    """Put an assistant message between a result and a user message that follows it."""
    bridged: list[Message] = []
    for message in messages:
        if bridged and _role(message) == "user" and _role(bridged[-1]) == "tool":
            bridged.append({"role": _ASSISTANT, "content": msgspec.Raw(b'"(see the results above)"')})
        bridged.append(message)
    return bridged


def _calls(message: Message) -> list[dict[str, Any]]:
    raw = message.get(_CALLS_NAME)
    return [] if raw is None else _CALLS.decode(raw)


EDITS: dict[str, Edit] = {
    "fill_content": _fill_content,
    "name_results": _name_results,
    "drop_names": _drop_names,
    "drop_thoughts": _drop_thoughts,
    "echo_thoughts": _echo_thoughts,
    "choose_thoughts": _choose_thoughts,
    "pair_calls": _pair_calls,
    "bridge_results": _bridge_results,
}


def known_edits(names: Iterable[str]) -> tuple[str, ...]:
    """Return the unique known names, in the order of the table."""
    wanted = set(names)
    return tuple(name for name in EDITS if name in wanted)
