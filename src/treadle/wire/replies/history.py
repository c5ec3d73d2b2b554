"""The items of a plan as the `input` of a request.

Reasoning goes back only to the provider and model that made it, and only together with what followed it: the API
refuses half of such a pair. Items are sent without ids, because with `store: false` an upstream knows none of them.
"""

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from treadle.canon.items import (
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
from treadle.canon.json import write_json
from treadle.wire.notes import Notes, is_alike
from treadle.wire.replies.drafts import ITEM_ID
from treadle.wire.replies.pairs import paired
from treadle.wire.responses.content import PROTOCOL
from treadle.wire.responses.seal import SEALED
from treadle.wire.responses.tools import bare_name

_EMPTY = msgspec.Raw(b"[]")


def write_history(items: Sequence[AnyItem], notes: Notes, *, provider: str, model: str) -> list[msgspec.Raw]:
    """Write the items in order."""
    writer = _Writer(notes, provider, model)
    for item in paired(items, notes):
        writer.add(item)
    writer.end()
    return writer.written


class _Writer:
    def __init__(self, notes: Notes, provider: str, model: str) -> None:
        self.written: list[msgspec.Raw] = []
        self._notes = notes
        self._provider = provider
        self._model = model
        self._thoughts: list[dict[str, Any]] = []

    def add(self, item: AnyItem) -> None:
        """Write one item."""
        match item:
            case MessageItem():
                self._add_message(item)
            case ReasoningItem():
                self._add_reasoning(item)
            case CallItem():
                self._add_call(item)
            case ResultItem():
                self._end_turn()
                self._write(self._result(item), item.extra)
            case OpaqueItem():
                self._add_opaque(item)
            case ReferenceItem():
                self._notes.add("reference_dropped", "dropped", "a reference to an item that is not stored")
            case _:
                assert_never(item)

    def end(self) -> None:
        """Leave out reasoning that nothing follows."""
        self._end_turn()

    def _add_message(self, item: MessageItem) -> None:
        if item.name is not None:
            self._notes.add("name_dropped", "dropped", "the name of who says a message")
        self._note_blobs(item.blobs)
        if item.role != "assistant":
            self._end_turn()
            self._write({"type": "message", "role": item.role, "content": self._said(item.content)}, item.extra)
            return
        attached = tuple(part for part in item.content if isinstance(part, ImagePart | FilePart))
        content = self._answered(tuple(part for part in item.content if not isinstance(part, ImagePart | FilePart)))
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

    def _add_reasoning(self, item: ReasoningItem) -> None:
        own = {blob.kind: blob.data for blob in item.blobs if self._is_own(blob)}
        is_readable = SEALED in own or (ITEM_ID in own and any(item.text))
        if not is_readable:
            self._notes.add("reasoning_dropped", "dropped", "reasoning that this upstream cannot read again")
            return
        thought: dict[str, Any] = {"type": "reasoning"}
        if ITEM_ID in own:
            thought["id"] = own[ITEM_ID]
        thought["summary"] = [{"type": "summary_text", "text": text} for text in item.summary]
        if item.text:
            thought["content"] = [{"type": "reasoning_text", "text": text} for text in item.text]
        if SEALED in own:
            thought["encrypted_content"] = own[SEALED]
        self._thoughts.append(self._with_extra(thought, item.extra))

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
        self.written.append(item.raw)

    def _result(self, item: ResultItem) -> dict[str, Any]:
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
        return result

    def _said(self, parts: tuple[AnyPart, ...]) -> str | list[msgspec.Raw]:
        """Write what goes to the model: one plain text as such, anything else as parts."""
        if not parts:
            return ""
        if len(parts) == 1 and isinstance(parts[0], TextPart) and not self._has_fields(parts[0].extra):
            return parts[0].text
        return self._kept(self._input_part(part) for part in parts)

    def _answered(self, parts: tuple[AnyPart, ...]) -> str | list[msgspec.Raw]:
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
                return self._with_extra({"type": "input_text", "text": part.text}, part.extra)
            case ImagePart():
                known = {"image_url": part.url, "file_id": part.file_id}
                image = {"type": "input_image", **_given(known), "detail": part.detail or "auto"}
                return self._with_extra(image, part.extra)
            case FilePart():
                is_data = part.url is not None and part.url.startswith("data:")
                place = {"file_data" if is_data else "file_url": part.url, "file_id": part.file_id}
                file = {"type": "input_file", **_given({"filename": part.filename, **place})}
                return self._with_extra(file, part.extra)
            case OpaquePart():
                return self._opaque_part(part)
            case _:
                assert_never(part)

    def _output_part(self, part: AnyPart) -> dict[str, Any] | msgspec.Raw | None:
        match part:
            case TextPart():
                text = {"type": "output_text", "text": part.text, "annotations": part.annotations or _EMPTY}
                return self._with_extra(text, part.extra)
            case RefusalPart():
                return self._with_extra({"type": "refusal", "refusal": part.text}, part.extra)
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

    def _kept(self, parts: Any) -> list[msgspec.Raw]:
        return [part if isinstance(part, msgspec.Raw) else _raw(part) for part in parts if part is not None]

    def _continue_turn(self) -> None:
        """Write the reasoning that leads to what follows."""
        self.written += [_raw(thought) for thought in self._thoughts]
        self._thoughts.clear()

    def _end_turn(self) -> None:
        if self._thoughts:
            self._notes.add(
                "reasoning_dropped", "dropped", "reasoning that nothing followed", count=len(self._thoughts)
            )
            self._thoughts.clear()

    def _write(self, item: dict[str, Any], extra: Extra | None = None) -> None:
        self.written.append(_raw(self._with_extra(item, extra)))

    def _with_extra(self, written: dict[str, Any], extra: Extra | None) -> dict[str, Any]:
        return {**extra.fields, **written} if extra is not None and self._has_fields(extra) else written

    def _has_fields(self, extra: Extra | None) -> bool:
        return extra is not None and extra.protocol == PROTOCOL

    def _is_own(self, blob: Blob) -> bool:
        is_same_model = not blob.model or not self._model or blob.model == self._model
        return bool(self._provider) and blob.provider == self._provider and is_same_model

    def _note_blobs(self, blobs: tuple[Blob, ...]) -> None:
        if blobs:
            message = "state that only the provider that made it can read"
            self._notes.add("blob_dropped", "dropped", message, count=len(blobs))


def _given(fields: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


def _raw(value: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(write_json(value))
