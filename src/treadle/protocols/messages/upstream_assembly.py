"""Blocks of an answer become item events.

A block is found by its index and kind, so that a reused index and pieces of several blocks in turn do no harm. Blocks
that never end, and pieces of blocks that are not open, say that something was lost; indexes that are left out do not.
Texts that follow each other are parts of one message. An item is done in the order in which it was added. Nothing here
knows events of the wire or frames.
"""

from typing import Any, cast

import msgspec

from treadle.core import ids as prefixes
from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, ReasoningDelta, TextDelta
from treadle.core.ids import IdSource
from treadle.core.items import CallItem, Extra, MessageItem, OpaqueItem, ReasoningItem, TextPart
from treadle.core.json import BadJson, read_json, write_json
from treadle.protocols.decoding.assembly_base import AnswerBounds, AnswerTotals, Maker
from treadle.protocols.decoding.call_arguments import Arguments, FinalArguments
from treadle.protocols.field_reader import OBJECT, TEXT, is_null, starts_with
from treadle.protocols.messages.provider_state import INVALID_JSON, PROTOCOL, REDACTED, SIGNATURE
from treadle.protocols.messages.upstream_event import NOTHING, BlockIn, DeltaIn, as_text, json_text
from treadle.protocols.surrogates import HalfJoiner, mend_text

BLOCKS_MAX = 4_096
ID_CHARS_MAX = 128

_KINDS = {"text": "text", "thinking": "thinking", "redacted_thinking": "thinking", "tool_use": "call"}
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})
_KNOWN_FIELDS = _CALL_FIELDS | {"caller", "toolset_name", "cache_control", "server_name"}
_KIND_OF_DELTA = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "call",
}


class _Draft:
    """An item in the making: `blocks` of it are open."""

    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.id = item_id
        self.blocks = 1


class _Message(_Draft):
    def __init__(self, index: int, item_id: str) -> None:
        super().__init__(index, item_id)
        self.texts: list[list[str]] = [[]]
        self.citations: list[list[msgspec.Raw]] = [[]]

    def next_part(self) -> int:
        """Open a part for another block; one that stayed empty is used again, so that parts are dense."""
        self.blocks = 1
        if self.texts[-1] or self.citations[-1]:
            self.texts.append([])
            self.citations.append([])
        return len(self.texts) - 1

    def begun(self) -> MessageItem:
        return MessageItem(id=self.id, role="assistant")

    def item(self) -> MessageItem:
        parts = [_part("".join(texts), cited) for texts, cited in zip(self.texts, self.citations, strict=True)]
        return MessageItem(id=self.id, role="assistant", content=tuple([part for part in parts if part is not None]))


class _Reasoning(_Draft):
    def __init__(self, index: int, item_id: str, maker: Maker) -> None:
        super().__init__(index, item_id)
        self.texts: list[str] = []
        self.secret = ""
        self.kind = SIGNATURE
        self._maker = maker

    def begun(self) -> ReasoningItem:
        return ReasoningItem(id=self.id)

    def item(self) -> ReasoningItem:
        text = "".join(self.texts)
        blobs = (self._maker.seal(self.kind, self.secret),) if self.secret else ()
        return ReasoningItem(id=self.id, text=(text,) if text else (), blobs=blobs)


class _Call(_Draft):
    def __init__(self, index: int, item_id: str, call: CallItem) -> None:
        super().__init__(index, item_id)
        self.call = call
        self.is_left_out = False
        self.whole = ""
        self.is_said = False
        self.arguments = Arguments()
        self.final: FinalArguments | None = None

    def begun(self) -> CallItem:
        return self.call

    def item(self) -> CallItem:
        if self.final is None:
            return self.call
        return msgspec.structs.replace(self.call, arguments=self.final.text, raw=self.final.raw)


class _Opaque(_Draft):
    def __init__(self, index: int, item_id: str, raw: msgspec.Raw) -> None:
        super().__init__(index, item_id)
        self.raw = raw
        self.pieces: list[str] = []
        self.rest: dict[str, list[str] | msgspec.Raw] = {}

    def begun(self) -> OpaqueItem:
        return OpaqueItem(id=self.id, protocol=PROTOCOL, raw=self.raw)

    def item(self) -> OpaqueItem:
        if not self.pieces and not self.rest:
            return self.begun()
        rest = {
            name: value if isinstance(value, msgspec.Raw) else mend_text("".join(value))
            for name, value in self.rest.items()
        }
        block: dict[str, Any] = {**OBJECT.decode(self.raw), **rest}
        if self.pieces:
            given = mend_text("".join(self.pieces))
            block["input"] = msgspec.Raw(given.encode()) if _is_object(given) else {INVALID_JSON: given}
        return OpaqueItem(id=self.id, protocol=PROTOCOL, raw=msgspec.Raw(write_json(block)))


_AnyDraft = _Message | _Reasoning | _Call | _Opaque


class _Block:
    """An open block of a draft; `part` counts the blocks of a message."""

    __slots__ = ("draft", "joiner", "kind", "part", "said_id")

    def __init__(self, draft: _AnyDraft, kind: str, part: int = 0, said_id: str = "") -> None:
        self.draft = draft
        self.kind = kind
        self.part = part
        self.said_id = said_id
        self.joiner = HalfJoiner()


class MessagesAssembly(AnswerTotals):
    """The items of one answer in the making. With `is_cut` it is known from the beginning that the end is missing."""

    def __init__(self, ids: IdSource, bounds: AnswerBounds, maker: Maker, taken_call_ids: frozenset[str]) -> None:
        super().__init__(ids, bounds, taken_call_ids, id_chars_max=ID_CHARS_MAX)
        self._maker = maker
        self._started = 0
        self._order: list[_AnyDraft] = []
        self._done = 0
        self._open: dict[tuple[Any, str], _Block] = {}
        self._last_index: int | None = None
        self.is_cut = self.is_streamed = False
        self._ended: set[Any] = set()

    @property
    def has_calls(self) -> bool:
        """Tell whether the model called anything."""
        return _Call in map(type, self._order)

    @property
    def calls_are_complete(self) -> bool:
        """Tell whether every call has arguments that are a complete object, or none at all."""
        return all(_is_whole(draft) for draft in self._order if isinstance(draft, _Call))

    @property
    def extent(self) -> tuple[int, ...]:
        """Return how much of the answer there is: a call may begin without a byte of arguments."""
        return (self._meter.bytes_held, self._started)

    @property
    def has_open(self) -> bool:
        """Tell whether a block has begun and not ended."""
        return bool(self._open)

    def start(self, index: Any, block: BlockIn, raw: msgspec.Raw) -> None:
        """Begin a block."""
        kind = _KINDS.get(block.type if isinstance(block.type, str) else "", "opaque")
        said_id = as_text(block.id)
        before = self._open.get((index, kind))
        if before is not None and kind == "call" and said_id and before.said_id == said_id:
            self.note("block_repeated", "dropped", "a call was announced twice")
            return
        if before is not None and index is not None and _says_nothing(kind, block):
            self.note("block_repeated", "dropped", "a block was announced twice")
            return
        if type(index) is int:
            self._count(index)
        if not isinstance(block.type, str):
            self._meter.spoil("a block has no kind")
            return
        if kind == "call" and not self._is_call(block, raw):
            return
        if [key for key in self._open if key[0] == index and index is not None]:
            self._meter.spoil("a block begins where another one has not ended")
            return
        self._stop(index)
        self._started += 1
        if self._started > BLOCKS_MAX:
            self._meter.refuse(f"more than {BLOCKS_MAX} blocks in one answer")
            return
        opened = self._open[index, kind] = self._begin(kind, block, raw, said_id)
        self._fill(opened, block)

    def add(self, index: Any, delta: DeltaIn) -> None:
        """Add a piece to the block it belongs to."""
        wanted = _KIND_OF_DELTA.get(delta.type, "opaque") if type(delta.type) is str else ""
        block = self._open.get((index, wanted)) or (self._open.get((index, "opaque")) if wanted else None)
        if block is None and index is None:
            block = next((each for each in reversed(self._open.values()) if each.kind == wanted), None)
            if block is None and not self._started and wanted in ("text", "thinking"):
                # Some servers announce no blocks at all and number none: nothing can then be missing before this one.
                self.note("block_without_start", "repaired", f"a piece of {wanted} came before its block")
                block = self._open[index, wanted] = self._begin(wanted, BlockIn(), msgspec.Raw(b"{}"), "")
        if block is not None:
            self._grow(block, delta)
        elif wanted == "opaque" and type(delta.type) is str and any(key[0] == index for key in self._open):
            self.note("delta_dropped", "dropped", "a piece of a kind that is not known")
        else:
            self._meter.spoil("a piece belongs to no open block")

    def stop(self, index: Any) -> None:
        """End the blocks of an index."""
        if not self._stop(index) and index not in self._ended:
            self.note("block_stop_stray", "dropped", "a block ended that had not begun")
        self._ended.add(index)
        self._emit_done()

    def check_ends(self) -> None:
        """Look whether every block has ended, as it must before a good end of the message."""
        if self._open and self._started:
            self._meter.spoil("a block has not ended")

    def finish(self, *, is_cut: bool = False) -> None:
        """End everything that is open; of a message that `is_cut` a call that is not whole is left out."""
        unended = [block.draft for block in self._open.values()]
        for block in self._open.values():
            self._close(block)
        self._open.clear()
        if is_cut:
            self._leave_cut_calls(unended)
        self._emit_done(is_over=True)
        self._note_left()

    def _count(self, index: int) -> None:
        """Take note of where a block stands: some servers leave indexes out though no block is missing."""
        last = self._last_index
        if last is not None and index > last + 1:
            self.note("block_gap", "kept", "the indexes of blocks leave numbers out")
        self._last_index = index if last is None else max(last, index)

    def _stop(self, index: Any) -> bool:
        """End the blocks of an index; tell whether any was open."""
        keys = [key for key in self._open if key[0] == index]
        for key in keys:
            self._close(self._open.pop(key))
        return bool(keys)

    def _leave_cut_calls(self, unended: list[_AnyDraft]) -> None:
        """Leave out the calls that the end of the message cut: one that never ended, and the last one, whose block is
        ended all the same."""
        for draft in self._order[self._done :]:
            is_last = draft is self._order[-1]
            if (
                isinstance(draft, _Call)
                and (is_last or draft in unended)
                and (self.is_cut or not _is_said_whole(draft))
            ):
                draft.is_left_out = True
                self._note_cut(draft.call.name, draft.arguments.size)

    def _is_call(self, block: BlockIn, raw: msgspec.Raw) -> bool:
        """Tell whether a call has all that it needs; one without an input may have it where nobody knows."""
        if block.input == NOTHING and not OBJECT.decode(raw).keys() <= _KNOWN_FIELDS:
            self._meter.spoil("the input of a call is not where it should be")
            return False
        return self._has_name(as_text(block.name))

    def _begin(self, kind: str, block: BlockIn, raw: msgspec.Raw, said_id: str) -> _Block:
        last = self._order[-1] if self._order else None
        if kind == "text" and isinstance(last, _Message) and not last.blocks:
            return _Block(last, kind, last.next_part())
        draft = self._new_draft(kind, block, raw)
        self._order.append(draft)
        self._emit_done()
        self.events.append(ItemAdded(index=draft.index, item=draft.begun()))
        return _Block(draft, kind, said_id=said_id)

    def _new_draft(self, kind: str, block: BlockIn, raw: msgspec.Raw) -> _AnyDraft:
        index = len(self._order)
        if kind == "text":
            return _Message(index, self._ids.new(prefixes.MESSAGE))
        if kind == "thinking":
            return _Reasoning(index, self._ids.new(prefixes.REASONING), self._maker)
        if kind == "call":
            item_id = self._ids.new(prefixes.CALL_ITEM)
            return _Call(index, item_id, self._call(block, item_id, raw))
        self._has_room(bytes(raw).decode("utf-8", "replace"))
        return _Opaque(index, self._ids.new(prefixes.ITEM), raw.copy())

    def _call(self, block: BlockIn, item_id: str, raw: msgspec.Raw) -> CallItem:
        upstream_id = as_text(block.id)
        name = as_text(block.name)
        call_id = self._call_id(upstream_id)
        rest = {key: value.copy() for key, value in OBJECT.decode(raw).items() if key not in _CALL_FIELDS}
        extra = Extra(protocol=PROTOCOL, fields=rest) if rest and self._has_room(json_text(rest)) else None
        return CallItem(id=item_id, call_id=call_id, name=name, upstream_id=upstream_id or None, extra=extra)

    def _fill(self, block: _Block, given: BlockIn) -> None:
        """Take what a block brings along when it begins: all of it, where nothing is streamed."""
        draft = block.draft
        if isinstance(draft, _Message):
            self._say(draft, block, as_text(given.text))
            for citation in cast("list[Any]", given.citations) if isinstance(given.citations, list) else ():
                self._cite(draft, block, citation)
        elif isinstance(draft, _Reasoning):
            self._think(draft, block.joiner.feed(as_text(given.thinking)))
            draft.kind = REDACTED if given.type == "redacted_thinking" else SIGNATURE
            self._sign(draft, as_text(given.data if draft.kind == REDACTED else given.signature))
        elif isinstance(draft, _Call):
            # Deltas that follow are the arguments themselves; until the end nobody knows whether this is all.
            draft.whole = _whole_input(given.input)

    def _grow(self, block: _Block, delta: DeltaIn) -> None:
        draft = block.draft
        if isinstance(draft, _Message):
            if type(delta.text) is str:
                self._say(draft, block, delta.text)
            elif delta.type == "text_delta":
                self._meter.spoil("a piece of text is none")
            if delta.type == "citations_delta" and delta.citation is not None:
                self._cite(draft, block, delta.citation)
        elif isinstance(draft, _Reasoning):
            if type(delta.thinking) is str:
                self._think(draft, block.joiner.feed(delta.thinking))
            elif delta.type == "thinking_delta":
                self._meter.spoil("a piece of thinking is none")
            self._sign(draft, as_text(delta.signature))
        elif isinstance(draft, _Call):
            if type(delta.partial_json) is str:
                self._argue(draft, block.joiner.feed(delta.partial_json))
            else:
                self._meter.spoil("a piece of arguments is none")
        else:
            self._extend(draft, delta)

    def _say(self, message: _Message, block: _Block, text: str) -> None:
        if block.joiner.half or not text.isascii():
            text = block.joiner.feed(text)
        if text:
            self._pass_text(message, block, text)

    def _pass_text(self, message: _Message, block: _Block, text: str) -> None:
        self._meter.add(text)
        if not self._meter.is_over:
            message.texts[block.part].append(text)
            self.events.append(TextDelta(index=message.index, text=text, part=block.part))

    def _cite(self, message: _Message, block: _Block, citation: Any) -> None:
        cited = msgspec.Raw(json_text(citation).encode())
        if self._has_room(bytes(cited).decode()):
            message.citations[block.part].append(cited)
            fields = {"citations": msgspec.Raw(b"[" + bytes(cited) + b"]")}
            extra = Extra(protocol=PROTOCOL, fields=fields)
            self.events.append(TextDelta(index=message.index, text="", part=block.part, extra=extra))

    def _think(self, thought: _Reasoning, text: str) -> None:
        if text and self._has_room(text):
            thought.texts.append(text)
            self.events.append(ReasoningDelta(index=thought.index, text=text))

    def _sign(self, thought: _Reasoning, secret: str) -> None:
        if secret and self._has_room(secret):
            thought.secret = secret.encode("utf-8", "replace").decode()

    def _argue(self, call: _Call, text: str) -> None:
        if not text:
            return
        self._meter.add(text)
        if self._meter.is_over:
            return
        ready = call.arguments.feed(text)
        if call.arguments.size > self._bounds.arguments_bytes_max:
            self._check_arguments(call.arguments.size)
        elif ready:
            self.events.append(ArgumentsDelta(index=call.index, text=ready))

    def _extend(self, draft: _Opaque, delta: DeltaIn) -> None:
        piece = as_text(delta.partial_json)
        if piece and self._has_room(piece):
            draft.pieces.append(piece)
        for name in ("text", "content", "encrypted_content"):
            value = getattr(delta, name)
            if value is None or not self._has_room(as_text(value) or json_text(value)):
                continue
            before = draft.rest.get(name)
            if not isinstance(value, str):
                draft.rest[name] = msgspec.Raw(json_text(value).encode())
            elif isinstance(before, list):
                before.append(value)
            else:
                draft.rest[name] = [value]

    def _close(self, block: _Block) -> None:
        draft, late = block.draft, block.joiner.finish() if block.joiner.half else ""
        if isinstance(draft, _Message):
            if late:
                self._pass_text(draft, block, late)
        elif isinstance(draft, _Reasoning):
            self._think(draft, late)
        elif isinstance(draft, _Call):
            self._close_call(draft, late)
        draft.blocks = 0

    def _close_call(self, call: _Call, late: str) -> None:
        self._argue(call, late)
        # `{}` is how every call begins: alone it does not say that the arguments are whole.
        call.is_said = bool(call.arguments.size) or call.whole != "{}"
        if not call.arguments.size:
            self._argue(call, call.whole)
        call.final = final = call.arguments.finish()
        if final.rest:
            self.events.append(ArgumentsDelta(index=call.index, text=final.rest))
        self._note_repair(final)

    def _emit_done(self, *, is_over: bool = False) -> None:
        """Say of every closed item that it is done, up to the first one that is still open.

        A message stays open until something else follows, because the next text belongs to it; so does a call whose
        arguments are no whole object, because the end of the message may tell that it was cut.
        """
        while self._done < len(self._order):
            draft = self._order[self._done]
            is_last = self._done == len(self._order) - 1
            if draft.blocks or (is_last and not is_over and self._may_go_on(draft)):
                return
            self._done += 1
            if not (isinstance(draft, _Call) and draft.is_left_out):
                self.events.append(ItemDone(index=draft.index, item=draft.item()))

    def _may_go_on(self, draft: _AnyDraft) -> bool:
        """Tell whether what comes next decides about an item whose blocks have ended."""
        if isinstance(draft, _Call):
            return self.is_cut or not _is_said_whole(draft)
        return isinstance(draft, _Message)


def _says_nothing(kind: str, block: BlockIn) -> bool:
    """Tell whether the announcement of a block brings nothing along; llama.cpp repeats it in its last batch."""
    given = (block.text, block.thinking, block.signature, block.data, block.citations)
    return kind in ("text", "thinking") and not any(given)


def _part(text: str, citations: list[msgspec.Raw]) -> TextPart | None:
    if not citations:
        return TextPart(text=text) if text else None
    extra = Extra(protocol=PROTOCOL, fields={"citations": msgspec.Raw(write_json(citations))})
    return TextPart(text=text, extra=extra)


def _whole_input(raw: msgspec.Raw) -> str:
    """Return arguments that came with their block: an object, compactly, or a text of one."""
    if raw == NOTHING or is_null(raw):
        return "{}"
    if starts_with(raw, '"'):
        return TEXT.decode(raw) or "{}"
    return bytes(msgspec.json.format(raw, indent=-1)).decode()


def _is_whole(draft: _Call) -> bool:
    if draft.final is not None:
        return _is_object(draft.final.text)
    return _is_object(draft.arguments.finish().text if draft.arguments.size else draft.whole)


def _is_said_whole(call: _Call) -> bool:
    """Tell whether a call has all of its arguments for sure: an object that was said, and not merely begun with."""
    return call.is_said and call.final is not None and _is_object(call.final.text)


def _is_object(text: str) -> bool:
    try:
        return isinstance(read_json(text), dict)
    except BadJson:
        return False
