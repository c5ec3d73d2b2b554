"""Writes the items of a plan as the `input` of a request.

Reasoning goes back only to the provider and model that made it, and only together with what followed it: the API
refuses half of such a pair. Items are sent without ids, because with `store: false` an upstream knows none of them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

import msgspec

from treadle.core.items import (
    AnyItem,
    AnyPart,
    Blob,
    CallItem,
    Extra,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ReferenceItem,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.protocols.responses.content_parts import PROTOCOL
from treadle.protocols.responses.encrypted_content import SEALED
from treadle.protocols.responses.tools import bare_name
from treadle.protocols.responses.upstream_call_pairs import paired
from treadle.protocols.responses.upstream_item_drafts import ITEM_ID
from treadle.protocols.translation_notes import Notes, is_alike
from treadle.protocols.turn_grouping import plain_text

_EMPTY = msgspec.Raw(b"[]")
_ATTACHMENTS = frozenset({ImagePart, FilePart})


class _Message(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="message"):
    """A message that is one plain text."""

    role: str
    content: str


class _Call(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="function_call"):
    call_id: str
    name: str
    arguments: str


class _Result(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="function_call_output"):
    call_id: str
    output: str


def write_plain_input(items: Sequence[AnyItem], *, provider: str, model: str) -> list[Any] | None:
    """Write plain texts, reasoning that can go back and is followed up, calls of functions, and their results in order.

    None for a history in which there is anything else. What follows is one loop without a call for each item, because
    that would cost as much as all the rest.
    """
    written: list[Any] = []
    called: set[str] = set()
    waiting: list[str] = []
    answered = 0
    is_thinking = False
    for item in items:
        if type(item) is MessageItem:
            if answered != len(waiting) or len(item.content) != 1 or item.blobs:
                return None
            if is_thinking and item.role != "assistant":
                return None
            part = item.content[0]
            if type(part) is not TextPart or part.extra is not None or part.annotations is not None:
                return None
            if item.extra is not None or item.name is not None or item.phase is not None:
                return None
            # An answer without a word is no message.
            if part.text or item.role != "assistant":
                written.append(_Message(item.role, part.text))
                is_thinking = False
        elif type(item) is CallItem:
            if item.blobs or item.extra is not None or item.kind != "function" or item.namespace is not None:
                return None
            if item.call_id in called or (answered and answered != len(waiting)):
                return None
            if answered:
                waiting, answered = [], 0
            called.add(item.call_id)
            waiting.append(item.call_id)
            written.append(_Call(item.call_id, item.name, item.arguments or "{}"))
            is_thinking = False
        elif type(item) is ResultItem:
            part = item.output[0] if len(item.output) == 1 else None
            if answered == len(waiting) or waiting[answered] != item.call_id or type(part) is not TextPart:
                return None
            if part.extra is not None or item.extra is not None or item.is_error:
                return None
            answered += 1
            written.append(_Result(item.call_id, part.text))
        else:
            thought = _thought(item, provider, model) if type(item) is ReasoningItem else None
            if thought is None or answered != len(waiting):
                return None
            written.append(thought)
            is_thinking = True
    return written if answered == len(waiting) and not is_thinking else None


def _thought(item: ReasoningItem, provider: str, model: str) -> dict[str, Any] | None:
    """Write reasoning; None if this upstream cannot read it again."""
    own = {blob.kind: blob.data for blob in item.blobs if _is_own(blob, provider, model)}
    if SEALED not in own and not (ITEM_ID in own and any(item.text)):
        return None
    thought: dict[str, Any] = {"type": "reasoning"}
    if ITEM_ID in own:
        thought["id"] = own[ITEM_ID]
    thought["summary"] = [{"type": "summary_text", "text": text} for text in item.summary]
    if item.text:
        thought["content"] = [{"type": "reasoning_text", "text": text} for text in item.text]
    if SEALED in own:
        thought["encrypted_content"] = own[SEALED]
    return _with_extra(thought, item.extra)


def _is_own(blob: Blob, provider: str, model: str) -> bool:
    is_same_model = not blob.model or not model or blob.model == model
    return bool(provider) and blob.provider == provider and is_same_model


def _with_extra(written: dict[str, Any], extra: Extra | None) -> dict[str, Any]:
    return {**extra.fields, **written} if extra is not None and extra.protocol == PROTOCOL else written


def write_history(items: Sequence[AnyItem], notes: Notes, *, provider: str, model: str) -> list[Any]:
    """Write the items in order."""
    return _Writer(notes, provider, model).write(paired(items, notes))


class _Writer:
    def __init__(self, notes: Notes, provider: str, model: str) -> None:
        self._written: list[Any] = []
        self._notes = notes
        self._provider = provider
        self._model = model
        self._thoughts: list[dict[str, Any]] = []

    def write(self, items: Iterable[AnyItem]) -> list[Any]:
        """Write the items; reasoning that nothing follows is left out."""
        adders: dict[type[AnyItem], Callable[[Any], None]] = {
            MessageItem: self._add_message,
            ReasoningItem: self._add_reasoning,
            CallItem: self._add_call,
            ResultItem: self._add_result,
            OpaqueItem: self._add_opaque,
            ReferenceItem: self._refer,
        }
        for item in items:
            adders[type(item)](item)
        self._end_turn()
        return self._written

    def _refer(self, _item: ReferenceItem) -> None:
        self._notes.add("reference_dropped", "dropped", "a reference to an item that is not stored")

    def _add_message(self, item: MessageItem) -> None:
        text = plain_text(item)
        if text is not None:
            self._add_text(item.role, text)
            return
        if item.name is not None:
            self._notes.add("name_dropped", "dropped", "the name of who says a message")
        self._note_blobs(item.blobs)
        if item.role != "assistant":
            self._end_turn()
            self._write({"type": "message", "role": item.role, "content": self._said(item.content)}, item.extra)
            return
        attached = tuple([part for part in item.content if type(part) in _ATTACHMENTS])
        content = self._answered(tuple([part for part in item.content if type(part) not in _ATTACHMENTS]))
        if content:
            message: dict[str, Any] = {"type": "message", "role": "assistant", "content": content}
            if item.phase is not None:
                message["phase"] = item.phase
            self._continue_turn()
            self._write(message, item.extra)
        if attached:
            self._notes.add("answer_attachment", "emulated", "images and files of an answer go into a user message")
            self._end_turn()
            parts = (TextPart(text="[attached to the answer above]"), *attached)
            self._write({"type": "message", "role": "user", "content": self._said(parts)})

    def _add_text(self, role: str, text: str) -> None:
        """Write what nearly every message is: one plain text."""
        if role != "assistant":
            self._end_turn()
        elif text:
            self._continue_turn()
        else:
            return
        self._written.append(_Message(role, text))

    def _add_reasoning(self, item: ReasoningItem) -> None:
        thought = _thought(item, self._provider, self._model)
        if thought is None:
            self._notes.add("reasoning_dropped", "dropped", "reasoning that this upstream cannot read again")
        else:
            self._thoughts.append(thought)

    def _add_call(self, item: CallItem) -> None:
        self._continue_turn()
        self._note_blobs(item.blobs)
        is_custom = item.kind == "custom"
        call: dict[str, Any] = {
            "type": "custom_tool_call" if is_custom else "function_call",
            "call_id": item.call_id,
            "name": bare_name(item),
        }
        if item.namespace is not None:
            call["namespace"] = item.namespace
        if is_custom:
            call["input"] = item.arguments
        else:
            call["arguments"] = item.arguments or "{}"
        self._write(call, item.extra)

    def _add_opaque(self, item: OpaqueItem) -> None:
        if item.protocol != PROTOCOL:
            self._notes.add("item_dropped", "dropped", f"an item that only {item.protocol} can carry")
            return
        self._continue_turn()
        self._written.append(item.raw)

    def _add_result(self, item: ResultItem) -> None:
        self._end_turn()
        is_custom = item.kind == "custom"
        result: dict[str, Any] = {
            "type": "custom_tool_call_output" if is_custom else "function_call_output",
            "call_id": item.call_id,
            "output": self._said(item.output),
        }
        # The protocol has no flag for a failed result, and for custom tools not even a status.
        if item.is_error and is_custom:
            self._notes.add("error_flag_dropped", "dropped", "that the result of a custom tool is an error")
        elif item.is_error:
            result["status"] = "incomplete"
        self._write(result, item.extra)

    def _said(self, parts: tuple[AnyPart, ...]) -> str | list[dict[str, Any] | msgspec.Raw]:
        """Write what goes to the model: one plain text as such, anything else as parts."""
        if not parts:
            return ""
        if len(parts) == 1 and isinstance(parts[0], TextPart) and not self._has_fields(parts[0].extra):
            return parts[0].text
        return self._kept(self._input_part(part) for part in parts)

    def _answered(self, parts: tuple[AnyPart, ...]) -> str | list[dict[str, Any] | msgspec.Raw]:
        """Write what came from the model; nothing at all is no message."""
        plain = [part.text for part in parts if isinstance(part, TextPart) and self._is_plain(part)]
        if len(plain) == len(parts) and len(parts) < 2:
            return "".join(plain)
        return self._kept(self._output_part(part) for part in parts)

    def _is_plain(self, part: TextPart) -> bool:
        return part.annotations is None and not self._has_fields(part.extra)

    def _input_part(self, part: AnyPart) -> dict[str, Any] | msgspec.Raw | None:
        match part:
            case TextPart() | RefusalPart():
                return _with_extra({"type": "input_text", "text": part.text}, part.extra)
            case ImagePart():
                known = {"image_url": part.url, "file_id": part.file_id}
                image = {"type": "input_image", **_given(known), "detail": part.detail or "auto"}
                return _with_extra(image, part.extra)
            case FilePart():
                is_data = part.url is not None and part.url.startswith("data:")
                place = {"file_data" if is_data else "file_url": part.url, "file_id": part.file_id}
                file = {"type": "input_file", **_given({"filename": part.filename, **place})}
                return _with_extra(file, part.extra)
            case OpaquePart():
                return self._opaque_part(part)
            case _:
                assert_never(part)

    def _output_part(self, part: AnyPart) -> dict[str, Any] | msgspec.Raw | None:
        match part:
            case TextPart():
                text = {"type": "output_text", "text": part.text, "annotations": part.annotations or _EMPTY}
                return _with_extra(text, part.extra)
            case RefusalPart():
                return _with_extra({"type": "refusal", "refusal": part.text}, part.extra)
            case OpaquePart():
                return self._opaque_part(part)
            case ImagePart() | FilePart():
                raise AssertionError("attachments of an answer are written apart")
            case _:
                assert_never(part)

    def _opaque_part(self, part: OpaquePart) -> msgspec.Raw | None:
        if part.protocol == PROTOCOL or is_alike(part):
            return part.raw
        self._notes.add("part_dropped", "dropped", f"a part that only {part.protocol} can carry")
        return None

    def _kept(self, parts: Iterable[dict[str, Any] | msgspec.Raw | None]) -> list[dict[str, Any] | msgspec.Raw]:
        return [part for part in parts if part is not None]

    def _continue_turn(self) -> None:
        """Write the reasoning that leads to what follows."""
        self._written += self._thoughts
        self._thoughts.clear()

    def _end_turn(self) -> None:
        if self._thoughts:
            self._notes.add(
                "reasoning_dropped", "dropped", "reasoning that nothing followed", count=len(self._thoughts)
            )
            self._thoughts.clear()

    def _write(self, item: dict[str, Any], extra: Extra | None = None) -> None:
        self._written.append(_with_extra(item, extra))

    def _has_fields(self, extra: Extra | None) -> bool:
        return extra is not None and extra.protocol == PROTOCOL

    def _note_blobs(self, blobs: tuple[Blob, ...]) -> None:
        if blobs:
            message = "state that only the provider that made it can read"
            self._notes.add("blob_dropped", "dropped", message, count=len(blobs))


def _given(fields: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}
