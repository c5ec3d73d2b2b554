"""Assembles the blocks of a Messages answer into items.

A block is found by its index and kind, so that a reused index and interleaved pieces of several blocks do no harm.
Blocks that never end, and pieces of blocks that are not open, show that something was lost; skipped indexes do not.
Consecutive text blocks are parts of one message. Events and frames are the business of `upstream_decoder`.
"""

from typing import Any, cast

import msgspec

from treadle.core import ids as prefixes
from treadle.core.events import TextDelta
from treadle.core.ids import IdSource
from treadle.core.items import AnyPart, Extra, OpaqueItem, TextPart
from treadle.core.json import write_json
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.protocols.decoding.call_arguments import is_object
from treadle.protocols.decoding.item_builder import ItemBuilder
from treadle.protocols.decoding.item_drafts import (
    BlobFactory,
    CallDraft,
    ItemDraft,
    MessageDraft,
    OpaqueDraft,
    PartDraft,
    ReasoningDraft,
)
from treadle.protocols.decoding.json_values import as_text, json_text
from treadle.protocols.field_reader import OBJECT, TEXT, is_null, starts_with
from treadle.protocols.messages.provider_state import INVALID_JSON, PROTOCOL, REDACTED, SIGNATURE
from treadle.protocols.messages.upstream_event import NOTHING, BlockIn, DeltaIn
from treadle.protocols.surrogates import mend_text

BLOCKS_MAX = 4_096

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


class _CitedPart(PartDraft):
    citations: list[msgspec.Raw] = msgspec.field(default_factory=list[msgspec.Raw])

    def part(self) -> AnyPart | None:
        if not self.citations:
            return super().part()
        extra = Extra(protocol=PROTOCOL, fields={"citations": msgspec.Raw(write_json(self.citations))})
        return TextPart(text="".join(self.pieces), extra=extra)


class _Thinking(ReasoningDraft):
    blob_kind = SIGNATURE


class _Call(CallDraft):
    given = ""
    """The input that came with the start of the block."""

    has_input = False
    """Whether any input came: `{}` is how every call starts, and alone does not mean that the arguments are whole."""

    @property
    def is_whole(self) -> bool:
        return super().is_whole if self.arguments.size else is_object(self.given)

    @property
    def is_surely_whole(self) -> bool:
        """Whether the arguments came as a complete object, rather than only started as one."""
        return self.has_input and self.final is not None and is_object(self.final.text)


class _Opaque(OpaqueDraft):
    def __init__(self, item_id: str, raw: msgspec.Raw) -> None:
        super().__init__(item_id, PROTOCOL, raw)
        self.pieces: list[str] = []
        self.rest: dict[str, list[str] | msgspec.Raw] = {}

    def item(self) -> OpaqueItem:
        if not self.pieces and not self.rest:
            return super().item()
        rest = {
            name: value if isinstance(value, msgspec.Raw) else mend_text("".join(value))
            for name, value in self.rest.items()
        }
        block: dict[str, Any] = {**OBJECT.decode(self.raw), **rest}
        if self.pieces:
            given = mend_text("".join(self.pieces))
            block["input"] = msgspec.Raw(given.encode()) if is_object(given) else {INVALID_JSON: given}
        return OpaqueItem(id=self.item_id, protocol=PROTOCOL, raw=msgspec.Raw(write_json(block)))


class MessagesAssembly(ItemBuilder):
    """The items of one Messages answer. With `is_cut` it is known from the start that the end is missing."""

    call_id_chars_max = 128
    is_cut = False
    _started = 0
    _last_index: int | None = None

    def __init__(
        self,
        ids: IdSource,
        bounds: AnswerBounds,
        blobs: BlobFactory,
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(ids, bounds, blobs, taken_call_ids)
        self._blocks: dict[tuple[Any, str], ItemDraft] = {}
        self._ended: set[Any] = set()

    @property
    def has_calls(self) -> bool:
        """Whether the model called anything."""
        return _Call in map(type, self._order)

    @property
    def calls_are_complete(self) -> bool:
        """Whether every call has arguments that are a complete object, or none at all."""
        return all(draft.is_whole for draft in self._order if isinstance(draft, _Call))

    @property
    def size(self) -> tuple[int, ...]:
        """How much of the answer there is; a block that continues a message counts too."""
        return (self.meter.bytes_held, self._started)

    @property
    def has_open_blocks(self) -> bool:
        """Whether a block has started and not ended."""
        return bool(self._blocks)

    def start(self, index: Any, block: BlockIn, raw: msgspec.Raw) -> None:
        """Start a block."""
        kind = _KINDS.get(block.type if isinstance(block.type, str) else "", "opaque")
        before = self._blocks.get((index, kind))
        if isinstance(before, _Call) and before.upstream_id and before.upstream_id == as_text(block.id):
            self.note("block_repeated", "dropped", "a call was announced twice")
            return
        if before is not None and index is not None and _is_empty(kind, block):
            self.note("block_repeated", "dropped", "a block was announced twice")
            return
        if type(index) is int:
            self._check_index(index)
        if not isinstance(block.type, str):
            self.meter.mark_damaged("a block has no kind")
            return
        if kind == "call" and not self._is_call(block, raw):
            return
        if index is not None and self._open_keys(index):
            self.meter.mark_damaged("a block begins where another one has not ended")
            return
        self._close_blocks(index)
        self._started += 1
        if self._started > BLOCKS_MAX:
            self.meter.refuse(f"more than {BLOCKS_MAX} blocks in one answer")
            return
        draft = self._blocks[index, kind] = self._open_block(kind, block, raw)
        self._fill(draft, block)

    def add(self, index: Any, delta: DeltaIn) -> None:
        """Add a piece to the block it belongs to."""
        wanted = _KIND_OF_DELTA.get(delta.type, "opaque") if type(delta.type) is str else ""
        draft = self._blocks.get((index, wanted)) or (self._blocks.get((index, "opaque")) if wanted else None)
        if draft is None and index is None:
            draft = next((each for key, each in reversed(self._blocks.items()) if key[1] == wanted), None)
            if draft is None and not self._started and wanted in ("text", "thinking"):
                # Some servers announce no blocks at all and number none: nothing can then be missing before this one.
                self.note("block_without_start", "repaired", f"a piece of {wanted} came before its block")
                draft = self._blocks[index, wanted] = self._open_block(wanted, BlockIn(), msgspec.Raw(b"{}"))
        if draft is not None:
            self._append(draft, delta)
        elif wanted == "opaque" and type(delta.type) is str and self._open_keys(index):
            self.note("delta_dropped", "dropped", "a piece of a kind that is not known")
        else:
            self.meter.mark_damaged("a piece belongs to no open block")

    def stop(self, index: Any) -> None:
        """End the blocks of an index."""
        if not self._close_blocks(index) and index not in self._ended:
            self.note("block_stop_stray", "dropped", "a block ended that had not begun")
        self._ended.add(index)
        self._emit_done()

    def check_ends(self) -> None:
        """Check that every block has ended, as it must before a good end of the message."""
        if self._blocks and self._started:
            self.meter.mark_damaged("a block has not ended")

    def finish(self, *, is_cut: bool = False) -> None:
        """Close everything that is open; a call that a cut answer left incomplete is left out."""
        unended = list(self._blocks.values())
        for draft in unended:
            self._close(draft)
        self._blocks.clear()
        if is_cut:
            self._leave_out_cut_calls(unended)
        self._emit_done(is_final=True)
        self._note_rest()

    def _check_index(self, index: int) -> None:
        """Note where indexes are skipped: some servers do it though no block is missing."""
        last = self._last_index
        if last is not None and index > last + 1:
            self.note("block_gap", "kept", "the indexes of blocks leave numbers out")
        self._last_index = index if last is None else max(last, index)

    def _open_keys(self, index: Any) -> list[tuple[Any, str]]:
        return [key for key in self._blocks if key[0] == index]

    def _close_blocks(self, index: Any) -> bool:
        """Close the blocks of an index; return whether any was open."""
        keys = self._open_keys(index)
        for key in keys:
            self._close(self._blocks.pop(key))
        return bool(keys)

    def _leave_out_cut_calls(self, unended: list[ItemDraft]) -> None:
        """Leave out a call that never ended, and the last one, whose block is ended even where it was cut."""
        for draft in self._order[self._done :]:
            is_last = draft is self._order[-1]
            if (
                isinstance(draft, _Call)
                and (is_last or draft in unended)
                and (self.is_cut or not draft.is_surely_whole)
            ):
                self._leave_out(draft)

    def _is_call(self, block: BlockIn, raw: msgspec.Raw) -> bool:
        """Check that a call has what it needs; one without an input may have it in a field that is not known."""
        if block.input == NOTHING and not OBJECT.decode(raw).keys() <= _KNOWN_FIELDS:
            self.meter.mark_damaged("the input of a call is not where it should be")
            return False
        return self._has_name(as_text(block.name))

    def _open(self, draft: ItemDraft) -> None:
        # What was only waiting for more text to follow is done now.
        self._emit_done(is_final=True)
        super()._open(draft)

    def _open_block(self, kind: str, block: BlockIn, raw: msgspec.Raw) -> ItemDraft:
        """Open an item for a block; a text may continue the message before it, as a part of its own."""
        last = self._order[-1] if self._order else None
        if kind == "text" and isinstance(last, MessageDraft) and last.is_closed:
            last.is_closed = False
            part = last.parts[-1]
            # One that stayed empty is used again, so that parts are numbered without gaps.
            if isinstance(part, _CitedPart) and (part.pieces or part.citations):
                last.parts.append(_CitedPart())
            return last
        if kind == "call":
            return self._open_tool_use(block, raw)
        if kind == "text":
            draft = MessageDraft(self._ids.new(prefixes.MESSAGE))
            draft.parts.append(_CitedPart())
        elif kind == "thinking":
            draft = _Thinking(self._ids.new(prefixes.REASONING))
        else:
            self.meter.add_raw(raw)
            draft = _Opaque(self._ids.new(prefixes.ITEM), raw)
        self._open(draft)
        return draft

    def _open_tool_use(self, block: BlockIn, raw: msgspec.Raw) -> _Call:
        call = _Call(as_text(block.id), as_text(block.name))
        rest = {key: value.copy() for key, value in OBJECT.decode(raw).items() if key not in _CALL_FIELDS}
        if rest and self._has_room(json_text(rest)):
            call.extra = Extra(protocol=PROTOCOL, fields=rest)
        self._open_call(call)
        return call

    def _fill(self, draft: ItemDraft, block: BlockIn) -> None:
        """Add what a block brings along when it starts: all of it, where nothing is streamed."""
        if isinstance(draft, MessageDraft):
            self._append_text(draft, as_text(block.text))
            for citation in cast("list[Any]", block.citations) if isinstance(block.citations, list) else ():
                self._cite(draft, citation)
        elif isinstance(draft, _Thinking):
            self._append_reasoning(draft, as_text(block.thinking))
            draft.blob_kind = REDACTED if block.type == "redacted_thinking" else SIGNATURE
            self._sign(draft, as_text(block.data if draft.blob_kind == REDACTED else block.signature))
        elif isinstance(draft, _Call):
            # Deltas that follow are the arguments themselves; only the end shows whether this is all.
            draft.given = _given_input(block.input)

    def _append(self, draft: ItemDraft, delta: DeltaIn) -> None:
        if isinstance(draft, MessageDraft):
            if type(delta.text) is str:
                self._append_text(draft, delta.text)
            elif delta.type == "text_delta":
                self.meter.mark_damaged("a piece of text is none")
            if delta.type == "citations_delta" and delta.citation is not None:
                self._cite(draft, delta.citation)
        elif isinstance(draft, _Thinking):
            if type(delta.thinking) is str:
                self._append_reasoning(draft, delta.thinking)
            elif delta.type == "thinking_delta":
                self.meter.mark_damaged("a piece of thinking is none")
            self._sign(draft, as_text(delta.signature))
        elif isinstance(draft, _Call):
            if type(delta.partial_json) is str:
                self._append_arguments(draft, delta.partial_json)
            else:
                self.meter.mark_damaged("a piece of arguments is none")
        elif isinstance(draft, _Opaque):
            self._append_opaque(draft, delta)

    def _cite(self, message: MessageDraft, citation: Any) -> None:
        part, cited = message.parts[-1], msgspec.Raw(json_text(citation).encode())
        if isinstance(part, _CitedPart) and self._has_room(bytes(cited).decode()):
            part.citations.append(cited)
            fields = {"citations": msgspec.Raw(b"[" + bytes(cited) + b"]")}
            extra = Extra(protocol=PROTOCOL, fields=fields)
            number = len(message.parts) - 1
            self.events.append(TextDelta(index=message.index, text="", part=number, extra=extra))

    def _sign(self, thinking: _Thinking, signature: str) -> None:
        if signature and self._has_room(signature):
            mended = signature.encode("utf-8", "replace").decode()
            thinking.blobs = (self.blobs.from_text(thinking.blob_kind, mended),)

    def _append_opaque(self, draft: _Opaque, delta: DeltaIn) -> None:
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

    def _close_call(self, call: CallDraft) -> None:
        if isinstance(call, _Call):
            if call.joiner.half:
                self._append_arguments(call, call.joiner.finish())
            call.has_input = bool(call.arguments.size) or call.given != "{}"
            if not call.arguments.size:
                self._append_arguments(call, call.given)
        super()._close_call(call)

    def _may_change(self, draft: ItemDraft) -> bool:
        """A message may continue with the next text, and the end may show that a call was cut."""
        if isinstance(draft, _Call):
            return self.is_cut or not draft.is_surely_whole
        return isinstance(draft, MessageDraft)


def _is_empty(kind: str, block: BlockIn) -> bool:
    """Whether the start of a block brings nothing along; llama.cpp repeats it in its last batch."""
    given = (block.text, block.thinking, block.signature, block.data, block.citations)
    return kind in ("text", "thinking") and not any(given)


def _given_input(raw: msgspec.Raw) -> str:
    """Return arguments that came with their block: an object, compactly, or a text of one."""
    if raw == NOTHING or is_null(raw):
        return "{}"
    if starts_with(raw, '"'):
        return TEXT.decode(raw) or "{}"
    return bytes(msgspec.json.format(raw, indent=-1)).decode()
