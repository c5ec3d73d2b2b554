"""Writes a history as Gemini wants it: contents of user and model in turn, each turn of calls followed by its results.

Canonical items hold calls and results in any order; here every call gets exactly one result, in call order, in the
content behind its turn. What has no partner is repaired and noted, because Gemini refuses the whole request otherwise.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.protocols.gemini.content_parts import (
    SIGNATURE,
    UNSIGNED,
    own_fields,
    write_arguments,
    write_part,
    write_response,
)
from treadle.protocols.gemini.field_spelling import PROTOCOL
from treadle.protocols.translation_notes import HISTORY, Notes
from treadle.protocols.turn_grouping import INTERRUPTED, partners, plain_turns, result_text

_BREAK = "\n\n"
_SIGNED = "thoughtSignature"
_ROLES = {"user": "user", "assistant": "model"}


class ContentsReader(msgspec.Struct, frozen=True, kw_only=True):
    """The reader of a history: a provider, its model, and whether that is of an older generation."""

    provider: str = ""
    model: str = ""
    is_old: bool = False

    def made(self, blob: Blob) -> bool:
        """Whether this very provider and model made the blob."""
        is_same_model = blob.model == self.model or not (blob.model and self.model)
        return bool(self.provider) and blob.provider == self.provider and is_same_model and blob.kind == SIGNATURE


class ContentsHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The written history: contents, and the parts of the system's instruction. Gemini wants a user to begin it."""

    contents: list[Any]
    system: list[dict[str, Any]]
    is_of_user: bool


class _Text(msgspec.Struct, frozen=True, gc=False):
    text: str


class _Content(msgspec.Struct, frozen=True, gc=False):
    role: str
    parts: tuple[_Text, ...]


def write_plain_history(items: Sequence[AnyItem]) -> ContentsHistory | None:
    """Write a history of plain texts in which a user and the model take turns behind the system's; None for others."""
    texts = plain_turns(items)
    if texts is None:
        return None
    leading = next((place for place, each in enumerate(texts) if each.role in _ROLES), len(texts))
    system = [{"text": each.content} for each in texts[:leading]]
    contents: list[_Content] = []
    last = ""
    for each in texts[leading:]:
        role = _ROLES.get(each.role, last)
        if role == last:
            return None
        contents.append(_Content(role, (_Text(each.content),)))
        last = role
    return ContentsHistory(contents=contents, system=system, is_of_user=bool(contents) and contents[0].role == "user")


def write_contents(items: Sequence[AnyItem], reader: ContentsReader, notes: Notes) -> ContentsHistory:
    """Write the whole history."""
    return _Writer(items, reader, notes).write(items)


class _Writer:
    def __init__(self, items: Sequence[AnyItem], reader: ContentsReader, notes: Notes) -> None:
        self._reader = reader
        self._notes = notes
        self._system: list[dict[str, Any]] = []
        self._contents: list[tuple[str, list[Any]]] = []
        self._parts: list[dict[str, Any]] = []
        self._calls: list[CallItem] = []
        self._ids: dict[str, str] = {}
        self._given: set[str] = set()
        self._answered = False
        self._called, self._results = partners(items)

    def write(self, items: Sequence[AnyItem]) -> ContentsHistory:
        """Put each item where it belongs; a call has one result, so more of them are left out."""
        adders: dict[type[AnyItem], Callable[[Any], None]] = {
            MessageItem: self._add_message,
            ReasoningItem: self._think,
            CallItem: self._call,
            ResultItem: self._add_result,
            OpaqueItem: self._add_opaque,
            ReferenceItem: self._refer,
        }
        for item in items:
            adders[type(item)](item)
        self._end_turn()
        left = sum(len(waiting) for call_id, waiting in self._results.items() if call_id in self._called)
        if left:
            self._notes.add("extra_result", "dropped", "a second result of the same call", count=left)
        contents = [parts[0] if not role else _content(role, parts) for role, parts in self._contents]
        # The role of a content that is sent back as it came is not known.
        is_of_user = bool(contents) and self._contents[0][0] != "model"
        return ContentsHistory(contents=contents, system=self._system, is_of_user=is_of_user)

    def _refer(self, _item: ReferenceItem) -> None:
        self._notes.add("reference_dropped", "dropped", "a reference to an item that is not stored")

    def _add_message(self, item: MessageItem) -> None:
        if item.name is not None:
            self._notes.add("name_dropped", "dropped", "the name of who speaks", "name")
        if item.role == "assistant":
            self._begin_turn()
            self._say(item)
        elif item.role == "user":
            self._end_turn()
            self._push("user", self._written(item))
        else:
            self._system += self._written(item)

    def _add_result(self, item: ResultItem) -> None:
        if item.call_id in self._called:
            self._answered = True
            return
        self._notes.add("orphan_result", "repaired", "a result without its call became a user's text", HISTORY)
        name = f" of {item.name}" if item.name else ""
        self._add_message(text_message("user", f"[result{name} without its call] {result_text(item.output)}"))

    def _add_opaque(self, item: OpaqueItem) -> None:
        if item.protocol != PROTOCOL:
            self._notes.add("item_dropped", "dropped", f"an item that only {item.protocol} can carry")
            return
        self._end_turn()
        self._contents.append(("", [item.raw]))

    def _say(self, item: MessageItem) -> None:
        parts = self._written(item)
        if _is_text(parts[:1]) and _is_text(self._parts[-1:]):
            # Texts that stand side by side are read as one; two messages are not.
            parts[0] = {**parts[0], "text": _BREAK + parts[0]["text"]}
        signature = self._signature(item.blobs)
        if parts and signature:
            parts[-1] = {**parts[-1], _SIGNED: signature}
        self._parts += parts

    def _think(self, item: ReasoningItem) -> None:
        self._begin_turn()
        text = _BREAK.join((*item.summary, *item.text))
        signature = self._signature(item.blobs)
        if text or signature:
            part: dict[str, Any] = {"text": text, "thought": True}
            self._parts.append({**part, _SIGNED: signature} if signature else part)

    def _call(self, call: CallItem) -> None:
        self._begin_turn()
        # What the provider itself called it, unless it gave that name twice.
        given = call.upstream_id if call.upstream_id and call.upstream_id not in self._given else call.call_id
        self._ids[call.call_id] = given
        self._given.add(given)
        arguments = {"input": call.arguments} if call.kind == "custom" else write_arguments(call.arguments)
        part: dict[str, Any] = {
            "functionCall": {"id": given, "name": call.name, "args": arguments, **own_fields(call.extra)}
        }
        signature = self._signature(call.blobs)
        if not signature and not self._calls and not self._reader.is_old:
            self._notes.add("unsigned_call", "emulated", "a call without a signature is marked as not to be checked")
            signature = UNSIGNED
        self._parts.append({**part, _SIGNED: signature} if signature else part)
        self._calls.append(call)

    def _signature(self, blobs: tuple[Blob, ...]) -> str:
        """Return the signature that goes back; the state of others is left out."""
        own = [blob.data for blob in blobs if self._reader.made(blob)]
        if len(own) < len(blobs):
            self._notes.add(
                "blob_dropped",
                "dropped",
                "state that only the provider that made it can read",
                count=len(blobs) - len(own),
            )
        return own[0] if own else ""

    def _begin_turn(self) -> None:
        if self._answered:
            self._end_turn()

    def _end_turn(self) -> None:
        parts, calls = self._parts, self._calls
        self._parts, self._calls, self._answered = [], [], False
        if not calls and all(_is_thought(part) for part in parts):
            if parts:
                self._notes.add("reasoning_dropped", "dropped", "reasoning that nothing followed", count=len(parts))
            return
        self._push("model", parts)
        self._push_results(calls)

    def _push_results(self, calls: list[CallItem]) -> None:
        responses: list[dict[str, Any]] = []
        attached: list[dict[str, Any]] = []
        for call in calls:
            result = self._result_of(call)
            files = self._files(result)
            response: dict[str, Any] = {
                "id": self._ids[call.call_id],
                "name": call.name,
                "response": write_response(result),
                **own_fields(result.extra),
            }
            if files and self._reader.is_old:
                attached += [{"text": f"[attached to the result of {call.name}]"}, *files]
            elif files:
                response["parts"] = files
            responses.append({"functionResponse": response})
        if attached:
            self._notes.add("result_attachment", "emulated", "images and files of results follow behind the results")
        self._push("user", responses + attached)

    def _files(self, result: ResultItem) -> list[dict[str, Any]]:
        written = (write_part(part, self._notes) for part in result.output if not isinstance(part, TextPart))
        return [part for part in written if part is not None]

    def _result_of(self, call: CallItem) -> ResultItem:
        waiting = self._results.get(call.call_id)
        if waiting:
            return waiting.pop()
        self._notes.add("orphan_call", "repaired", "a call without a result was closed as interrupted", HISTORY)
        return text_result(call, INTERRUPTED, is_error=True, rc="interrupted")

    def _written(self, item: MessageItem) -> list[dict[str, Any]]:
        written = (write_part(part, self._notes) for part in item.content)
        return [part for part in written if part is not None]

    def _push(self, role: str, parts: list[Any]) -> None:
        """Add a content, or continue the last one if it has the same role."""
        if not parts:
            return
        if self._contents and self._contents[-1][0] == role:
            self._contents[-1][1].extend(parts)
        else:
            self._contents.append((role, list(parts)))


def _content(role: str, parts: list[Any]) -> dict[str, Any]:
    return {"role": role, "parts": parts}


def _is_thought(part: dict[str, Any]) -> bool:
    return part.get("thought") is True


def _is_text(one: list[dict[str, Any]]) -> bool:
    """Whether there is a part and it is text that is shown."""
    return any("text" in part and not _is_thought(part) for part in one)
