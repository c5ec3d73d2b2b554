"""Writes a history as the Messages API wants it: a system prompt, then users and assistants who take turns.

Each turn of the model is one message of blocks in their order; directly behind it stands a user's message that
begins with one result for every call, in call order. What has no partner or no place is repaired and noted, because
the API refuses the whole request otherwise.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.core.items import (
    AnyItem,
    AnyPart,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    TextPart,
    text_of,
    text_result,
)
from treadle.core.json import type_errors
from treadle.protocols.field_reader import NULL, starts_with
from treadle.protocols.messages.content_blocks import BLOCK, own_fields, write_part, write_text
from treadle.protocols.messages.provider_state import INVALID_JSON, PROTOCOL, REDACTED, SIGNATURE, shown_id
from treadle.protocols.translation_notes import HISTORY, Notes
from treadle.protocols.turn_grouping import INTERRUPTED, OPENING, TurnText, partners, plain_text, result_text

Block = dict[str, Any] | msgspec.Raw

_ATTACHED = "[attached to the answer]"
_NO_WORDS = "(It failed without a word.)"
_THOUGHTS = ("thinking", "redacted_thinking")
_SYSTEM_ROLES = ("system", "developer")
_SPEAKERS = ("user", "assistant")
_ATTACHMENTS = frozenset({ImagePart, FilePart})

_object: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class _Head(msgspec.Struct):
    role: msgspec.Raw = NULL


_head = msgspec.json.Decoder(_Head)


class Dialogue:
    """Puts the messages together, item by item; `provider` and `model` are those whose opaque state may be sent."""

    def __init__(self, items: Sequence[AnyItem], notes: Notes, provider: str, model: str) -> None:
        self.system: list[MessageItem] = []
        leading = _leading(items)
        self._usual = _usual_turns(items[leading:] if leading else items, provider, model)
        if self._usual is not None:
            items = items[:leading]
            if not items:
                return
        self._messages: list[tuple[str, list[Block]]] = []
        self._notes = notes
        self._provider = provider
        self._model = model
        self._turn: list[Block] = []
        self._calls: list[tuple[CallItem, str]] = []
        self._attached: list[Block] = []
        self._answered = False
        self._shown: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._called, self._results = partners(items)
        adders: dict[type[AnyItem], Callable[[Any], None]] = {
            MessageItem: self._add_message,
            ReasoningItem: self._think,
            CallItem: self._call,
            ResultItem: self._answer,
            OpaqueItem: self._add_opaque,
            ReferenceItem: self._refer,
        }
        for item in items:
            adders[type(item)](item)

    def messages(self) -> Sequence[Any]:
        """Return the messages, complete."""
        if self._usual is not None:
            return self._usual
        self._end_turn()
        self._note_leftovers()
        if not self._messages or self._messages[0][0] == "assistant":
            self._notes.add("opening_added", "emulated", "a conversation must begin with a user's message")
            self._messages.insert(0, ("user", [write_text(OPENING)]))
        role, blocks = self._messages[-1]
        last = blocks[-1]
        if role == "assistant" and isinstance(last, dict) and last["type"] == "text":
            # An answer that the model shall continue must not end in white space.
            blocks[-1] = {**last, "text": last["text"].rstrip()}
        return [{"role": role, "content": _content(blocks)} for role, blocks in self._messages]

    def _refer(self, _item: ReferenceItem) -> None:
        self._notes.add("reference_dropped", "dropped", "a reference to an item that is not stored")

    def _add_message(self, item: MessageItem) -> None:
        text = plain_text(item) if item.role in _SPEAKERS else None
        if text is not None:
            self._add_text(item.role, [write_text(text)] if text.strip() else [])
            return
        if item.name is not None:
            self._notes.add("name_dropped", "dropped", "the name of who said a message")
        if item.blobs:
            self._notes.add("blob_dropped", "dropped", "state that only the provider that made it can read")
        if item.role == "assistant":
            self._start_reply()
            self._add_assistant_message(item)
        elif item.role in _SYSTEM_ROLES:
            self._add_system(item)
        else:
            self._end_turn()
            self._push("user", self._blocks(item))

    def _add_text(self, role: str, blocks: list[Block]) -> None:
        """Add what nearly every message is: one plain text of a user or the model."""
        if role != "assistant":
            self._end_turn()
            self._push("user", blocks)
            return
        if self._answered:
            self._end_turn()
        self._turn += blocks

    def _add_assistant_message(self, item: MessageItem) -> None:
        """Add to the turn; the API takes images and files from users only, so those follow behind it."""
        shown = tuple([part for part in item.content if type(part) in _ATTACHMENTS])
        if not shown:
            self._turn += self._blocks(item)
            return
        self._notes.add("answer_attachment", "emulated", "images and files of an answer follow in a user message")
        others = tuple([part for part in item.content if type(part) not in _ATTACHMENTS])
        marker = f"[{len(shown)} attachment(s) of this answer follow in the next user message]"
        self._turn += [*self._blocks(msgspec.structs.replace(item, content=others)), write_text(marker)]
        self._attached += [write_text(_ATTACHED), *self._blocks(msgspec.structs.replace(item, content=shown))]

    def _add_system(self, item: MessageItem) -> None:
        if not self._messages and not self._turn:
            self.system.append(item)
            return
        self._end_turn()
        parts = tuple(part for part in item.content if not isinstance(part, TextPart | OpaquePart))
        if any(isinstance(part, OpaquePart) for part in item.content):
            self._notes.add("part_dropped", "dropped", "a part that only a system message can carry")
        texts = [part for part in item.content if isinstance(part, TextPart)]
        text = text_of(item.content).strip()
        if text:
            self._notes.add("system_in_place", "emulated", "system messages in the middle became marked user text")
            fields = own_fields(texts[-1].extra, self._notes)
            fields.pop(BLOCK, None)
            self._push("user", [write_text(f"<system>\n{text}\n</system>", fields)])
        self._push("user", self._blocks(msgspec.structs.replace(item, content=parts)))

    def _think(self, item: ReasoningItem) -> None:
        self._start_reply()
        thought = _thought(item, self._provider, self._model)
        if thought is None:
            self._notes.add("reasoning_dropped", "dropped", "reasoning that this provider did not sign")
        else:
            self._turn.append(thought)

    def _call(self, item: CallItem) -> None:
        self._start_reply()
        if item.blobs:
            self._notes.add("blob_dropped", "dropped", "state that only the provider that made it can read")
        call_id = self._unique(shown_id(item.call_id))
        self._calls.append((item, call_id))
        block = {"type": "tool_use", "id": call_id, "name": item.name, "input": self._input(item)}
        if item.extra is not None:
            block |= own_fields(item.extra, self._notes)
        self._turn.append(block)

    def _unique(self, shown: str) -> str:
        number, unique = self._numbers.get(shown, 1), shown
        while unique in self._shown:
            number += 1
            unique = f"{shown}_{number}"
        # The next one of this id continues from here instead of trying every number again.
        self._numbers[shown] = number
        self._shown.add(unique)
        return unique

    def _input(self, item: CallItem) -> Any:
        """Return the arguments as the object that the API demands."""
        if item.kind == "custom":
            return {"input": item.arguments}
        try:
            _object.decode(item.arguments or "{}")
        except (*type_errors, UnicodeEncodeError):
            self._notes.add("arguments_wrapped", "coerced", "arguments that are not a JSON object are sent as a text")
            return {INVALID_JSON: item.arguments}
        return msgspec.Raw((item.arguments or "{}").encode())

    def _answer(self, item: ResultItem) -> None:
        if item.call_id in self._called:
            self._answered = True
            return
        self._notes.add("orphan_result", "repaired", "a result without its call became a user's text", HISTORY)
        name = f" of {item.name}" if item.name else ""
        self._end_turn()
        self._push("user", [write_text(f"[result{name} without its call] {result_text(item.output)}")])

    def _add_opaque(self, item: OpaqueItem) -> None:
        if item.protocol != PROTOCOL:
            self._notes.add("item_dropped", "dropped", f"an item that only {item.protocol} can carry")
        elif starts_with(_head.decode(item.raw).role, '"'):
            self._notes.add("item_dropped", "dropped", "a message of a role that this API does not take")
        else:
            self._start_reply()
            self._turn.append(item.raw)

    def _start_reply(self) -> None:
        """Begin a new turn of the model if the calls of the last one are answered already."""
        if self._answered:
            self._end_turn()

    def _end_turn(self) -> None:
        """Close the turn of the model, and answer its calls."""
        turn, calls, self._answered = self._turn, self._calls, False
        if not (turn or calls or self._attached):
            return
        self._turn, self._calls = [], []
        while turn and isinstance(turn[-1], dict) and turn[-1]["type"] in _THOUGHTS:
            self._notes.add("reasoning_dropped", "dropped", "reasoning that nothing followed")
            turn.pop()
        self._push("assistant", turn)
        attached, self._attached = self._attached, []
        if calls or attached:
            self._push("user", [self._result(call, call_id) for call, call_id in calls] + attached)

    def _result(self, call: CallItem, call_id: str) -> Block:
        waiting = self._results.get(call.call_id)
        if waiting:
            result = waiting.pop()
        else:
            self._notes.add("orphan_call", "repaired", "a call without a result was closed as interrupted", HISTORY)
            result = text_result(call, INTERRUPTED, is_error=True, rc="interrupted")
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": self._output(result)}
        if result.is_error:
            # The API refuses an error without a word.
            block |= {"content": block["content"] or _NO_WORDS, "is_error": True}
        return block if result.extra is None else {**block, **own_fields(result.extra, self._notes)}

    def _output(self, result: ResultItem) -> str | list[Block]:
        if len(result.output) == 1:
            part = result.output[0]
            if type(part) is TextPart and part.extra is None:
                return part.text if part.text.strip() else ""
        written = (write_part(part, self._notes) for part in result.output)
        return _content([part for part in written if part is not None])

    def _note_leftovers(self) -> None:
        left = sum(len(waiting) for call_id, waiting in self._results.items() if call_id in self._called)
        if left:
            self._notes.add("extra_result", "dropped", "a second result of the same call", count=left)

    def _blocks(self, item: MessageItem) -> list[Block]:
        written = (write_part(part, self._notes) for part in item.content)
        return [block for block in written if block is not None]

    def _push(self, role: str, blocks: list[Block]) -> None:
        """Add to the last message if it is of the same role: two of one role may not follow each other."""
        if not blocks:
            return
        if self._messages and self._messages[-1][0] == role:
            self._messages[-1][1].extend(blocks)
        else:
            self._messages.append((role, blocks))


def _leading(items: Sequence[AnyItem]) -> int:
    """Return how many items stand before the dialogue, as its system prompt."""
    for place, item in enumerate(items):
        if type(item) is not MessageItem or item.role not in _SYSTEM_ROLES:
            return place
    return len(items)


class _Text(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    text: str


class _Use(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


class _Result(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str
    is_error: bool = False


class _Blocks(msgspec.Struct, frozen=True, gc=False):
    """A message of several blocks, or of one that is no plain text."""

    role: str
    content: list[Any]


def _usual_turns(items: Sequence[AnyItem], provider: str, model: str) -> list[Any] | None:
    """Return the messages of a dialogue that a user begins.

    Of texts, thoughts that can go back and are followed up, calls of functions, and their results in order; None for a
    history in which there is anything else.
    """
    messages: list[TurnText | _Blocks] = []
    role, called, waiting, answered, is_thinking = "", set[str](), list[str](), 0, False
    for item in items:
        if answered and answered == len(waiting) and type(item) is not ResultItem:
            waiting, answered = [], 0
        if type(item) is MessageItem:
            speaker, content = item.role, item.content
            if waiting or item.name is not None or item.blobs or speaker not in _SPEAKERS:
                return None
            if is_thinking and speaker == "user":
                return None
            is_thinking = False
            part = content[0] if len(content) == 1 else None
            if speaker != role and type(part) is TextPart and part.extra is None:
                # The API refuses text without a visible character.
                if not part.text or part.text.isspace():
                    return None
                messages.append(TurnText(speaker, part.text))
                role = speaker
                continue
            blocks = _usual_texts(content)
        elif type(item) is CallItem and not answered:
            speaker, blocks, is_thinking = "assistant", _usual_call(item, called), False
            waiting.append(item.call_id)
        elif type(item) is ResultItem and answered < len(waiting) and waiting[answered] == item.call_id:
            speaker, blocks = "user", _usual_result(item)
            answered += 1
        elif type(item) is ReasoningItem and not waiting:
            thought = _thought(item, provider, model)
            speaker, blocks, is_thinking = "assistant", None if thought is None else [thought], True
        else:
            return None
        if not blocks:
            return None
        last = messages[-1] if role == speaker else None
        if last is None:
            messages.append(_Blocks(speaker, blocks))
        elif type(last) is TurnText:
            messages[-1] = _Blocks(speaker, [_Text(last.content), *blocks])
        elif type(last) is _Blocks:
            last.content.extend(blocks)
        role = speaker
    return _ended(messages) if answered == len(waiting) else None


def _ended(messages: list[TurnText | _Blocks]) -> list[TurnText | _Blocks] | None:
    if not messages or messages[0].role != "user":
        return None
    last = messages[-1]
    if last.role == "assistant":
        if type(last) is not TurnText:
            return None
        # An answer that the model shall continue must not end in white space.
        messages[-1] = TurnText("assistant", last.content.rstrip())
    return messages


def _thought(item: ReasoningItem, provider: str, model: str) -> dict[str, Any] | None:
    """Write a thought; None if this provider did not sign it."""
    for blob in item.blobs:
        if blob.kind in (SIGNATURE, REDACTED) and provider and blob.provider == provider:
            if blob.model and model and blob.model != model:
                continue
            if blob.kind == REDACTED:
                return {"type": "redacted_thinking", "data": blob.data}
            return {"type": "thinking", "thinking": "".join(item.text), "signature": blob.data}
    return None


def _usual_texts(parts: Sequence[AnyPart]) -> list[Any] | None:
    blocks: list[Any] = []
    for part in parts:
        if type(part) is not TextPart or not part.text or part.text.isspace():
            return None
        if part.extra is None:
            blocks.append(_Text(part.text))
        elif part.extra.protocol == PROTOCOL:
            blocks.append(write_text(part.text, part.extra.fields))
        else:
            return None
    return blocks


def _usual_call(item: CallItem, called: set[str]) -> list[Any] | None:
    """Write a call of a function by an id that can be shown and was not used before."""
    call_id, arguments, extra = item.call_id, item.arguments or "{}", item.extra
    if item.kind != "function" or item.blobs or call_id in called or shown_id(call_id) != call_id:
        return None
    called.add(call_id)
    try:
        _object.decode(arguments)
    except (*type_errors, UnicodeEncodeError):
        return None
    given = msgspec.Raw(arguments)
    if extra is None:
        return [_Use(call_id, item.name, given)]
    if extra.protocol != PROTOCOL:
        return None
    return [{"type": "tool_use", "id": call_id, "name": item.name, "input": given, **extra.fields}]


def _usual_result(item: ResultItem) -> list[Any] | None:
    """Write a result that is one plain text."""
    part = item.output[0] if len(item.output) == 1 else None
    if type(part) is not TextPart or part.extra is not None or item.extra is not None:
        return None
    text = "" if part.text.isspace() else part.text
    return [_Result(item.call_id, text or _NO_WORDS, True) if item.is_error else _Result(item.call_id, text)]


def _content(blocks: list[Block]) -> str | list[Block]:
    """Return one plain text as a string, anything else as blocks."""
    if not blocks:
        return ""
    first = blocks[0]
    if len(blocks) == 1 and isinstance(first, dict) and len(first) == 2 and "text" in first:
        return first["text"]
    return blocks
