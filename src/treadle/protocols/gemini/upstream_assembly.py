"""The parts of an answer become item events.

Gemini sends whole parts, so one item is open at a time: texts that follow each other are one message, thoughts one
reasoning, and every function call is a call of its own. Only a call whose arguments are streamed waits until they are
complete, and those behind it wait with it. Nothing here knows chunks or frames.
"""

from typing import Any, cast

import msgspec

from treadle.core import ids as prefixes
from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, ReasoningDelta, TextDelta
from treadle.core.ids import IdSource
from treadle.core.items import AnyPart, Blob, CallItem, Extra, MessageItem, OpaquePart, ReasoningItem, TextPart
from treadle.protocols.decoding.assembly_base import AnswerBounds, AnswerTotals
from treadle.protocols.decoding.call_arguments import Arguments, FinalArguments
from treadle.protocols.gemini.content_parts import PART, RAW_ARGUMENTS, is_object
from treadle.protocols.gemini.field_spelling import PROTOCOL
from treadle.protocols.gemini.upstream_chunk import as_object, as_word, json_text
from treadle.protocols.gemini.upstream_partial_arguments import PartialArguments
from treadle.protocols.surrogates import HalfJoiner

CALLS_MAX = 1024


class CallPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A call, or a piece of one whose arguments are streamed: `args` whole, or `partial` ones."""

    id: str = ""
    name: str = ""
    args: Any = None
    partial: list[Any] = []
    will_continue: bool = False
    blobs: tuple[Blob, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether it says nothing but that a streamed call is complete."""
        return not (self.id or self.name or self.partial or self.will_continue) and self.args is None


class _Message:
    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.joiner = HalfJoiner()
        self.blobs: tuple[Blob, ...] = ()
        self.about: dict[str, msgspec.Raw] = {}
        self._id = item_id
        self._parts: list[AnyPart | list[str]] = []

    def add(self, text: str) -> int:
        """Add text and return the part it belongs to."""
        if not self._parts or not isinstance(self._parts[-1], list):
            self._parts.append([])
        cast("list[str]", self._parts[-1]).append(text)
        return len(self._parts) - 1

    def show(self, part: AnyPart) -> int:
        """Add a part that is not text and return its place."""
        self._parts.append(part)
        return len(self._parts) - 1

    def item(self) -> MessageItem:
        """Return the message so far."""
        content = tuple(TextPart(text="".join(part)) if isinstance(part, list) else part for part in self._parts)
        extra = Extra(protocol=PROTOCOL, fields=self.about) if self.about else None
        return MessageItem(id=self._id, role="assistant", content=content, blobs=self.blobs, extra=extra)


class _Reasoning:
    def __init__(self, index: int, item_id: str) -> None:
        self.index = index
        self.joiner = HalfJoiner()
        self.blobs: tuple[Blob, ...] = ()
        self.texts: list[str] = []
        self._id = item_id

    def item(self) -> ReasoningItem:
        """Return the reasoning so far."""
        text = "".join(self.texts)
        return ReasoningItem(id=self._id, text=(text,) if text else (), blobs=self.blobs)


class _Call:
    """A call that is not shown yet."""

    def __init__(self, piece: CallPiece) -> None:
        self.id = piece.id
        self.name = ""
        self.blobs: tuple[Blob, ...] = ()
        self.is_open = True
        self._args: Any = None
        self._partial: PartialArguments | None = None

    def add(self, piece: CallPiece) -> int:
        """Add a piece and return how many bytes of streamed arguments are held."""
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        self.blobs = self.blobs or piece.blobs
        self.is_open = piece.will_continue
        if piece.args is not None:
            self._args = piece.args
        if piece.partial and self._partial is None:
            self._partial = PartialArguments()
        if self._partial is not None:
            self._partial.add(piece.partial)
        return self.size

    @property
    def is_sound(self) -> bool:
        """Tell whether the arguments came as an object, which only one that was not cut can be."""
        is_object = isinstance(self._args, dict) and RAW_ARGUMENTS not in self._args
        return self._partial is not None or self._args is None or is_object

    @property
    def size(self) -> int:
        """Return how many bytes of streamed arguments are held."""
        return 0 if self._partial is None else self._partial.size

    def arguments(self) -> FinalArguments:
        """Return the arguments as text."""
        if self._partial is not None:
            text = json_text({**as_object(self._args), **self._partial.value()})
            return FinalArguments(text=text, rest="")
        args = as_object(self._args)
        if args.keys() == {RAW_ARGUMENTS} and isinstance(args[RAW_ARGUMENTS], str):
            return FinalArguments(text=as_word(args[RAW_ARGUMENTS]) or "{}", rest="")
        if isinstance(self._args, dict):
            return FinalArguments(text=json_text(self._args), rest="")
        machine = Arguments()
        machine.feed(as_word(self._args) if isinstance(self._args, str | None) else json_text(self._args))
        return machine.finish()


def _is_alike(said: CallItem, call: _Call, final: FinalArguments) -> bool:
    return (said.name, said.arguments) == (call.name, final.text)


class GeminiAssembly(AnswerTotals):
    """The items of one answer in the making."""

    def __init__(self, ids: IdSource, bounds: AnswerBounds, taken_call_ids: frozenset[str] = frozenset()) -> None:
        super().__init__(ids, bounds, taken_call_ids)
        self.calls: list[CallItem] = []
        self._items = 0
        self._speaking: _Message | _Reasoning | None = None
        self._waiting: list[_Call] = []
        self.is_streamed = False

    @property
    def calls_are_complete(self) -> bool:
        """Tell whether every call has arguments that are an object and none is still streamed."""
        return not any(call.is_open for call in self._waiting) and all(is_object(call.arguments) for call in self.calls)

    def add_text(self, text: str) -> None:
        """Add to the message, or begin one."""
        message = self._speaking
        if text and type(message) is not _Message:
            message = self._message()
        if text and type(message) is _Message:
            self._say(message, text if text.isascii() and not message.joiner.half else message.joiner.feed(text))

    def add_part(self, part: AnyPart, size: int) -> None:
        """Add a part that is not text to the message, or begin one."""
        if self._has_room_for(size):
            message = self._message()
            self._say(message, message.joiner.finish())
            place = message.show(part)
            if isinstance(part, OpaquePart):
                # Whoever tells it at once needs not wait for the end of the message to keep the order.
                extra = Extra(protocol=PROTOCOL, fields={PART: part.raw})
                self.events.append(TextDelta(index=message.index, text="", part=place, extra=extra))

    def tell(self, name: str, raw: msgspec.Raw) -> bool:
        """Keep what is said about the message, the last word of each kind; tell whether there is one."""
        if isinstance(self._speaking, _Message) and self._has_room_for(len(bytes(raw))):
            self._speaking.about[name] = raw
            return True
        return False

    def add_thought(self, text: str, blobs: tuple[Blob, ...] = ()) -> None:
        """Add to the reasoning, or begin some; a signature ends it."""
        if not text and not blobs:
            return
        thought = self._speaking
        if not isinstance(thought, _Reasoning):
            self._show_complete(is_followed=True)
            self._fall_silent()
            thought = self._speaking = _Reasoning(self._next(), self._ids.new(prefixes.REASONING))
            self.events.append(ItemAdded(index=thought.index, item=thought.item()))
        self._think(thought, thought.joiner.feed(text))
        if blobs:
            thought.blobs = blobs
            self._fall_silent()

    def sign(self, blobs: tuple[Blob, ...]) -> None:
        """Keep the signature of what is being said."""
        if isinstance(self._speaking, _Message):
            self._speaking.blobs += blobs
        elif blobs:
            self.note("signature_dropped", "dropped", "a signature of nothing that was said")

    def add_call(self, piece: CallPiece) -> None:
        """Add a call, or a piece of one."""
        call = self._continued(piece)
        if call is None:
            if piece.is_empty:
                return
            call = _Call(piece)
            self._waiting.append(call)
            if len(self.calls) + len(self._waiting) > CALLS_MAX:
                self._meter.refuse(f"more than {CALLS_MAX} calls in one answer")
                return
        if self._check_arguments(call.add(piece)):
            self._show_complete()

    @property
    def is_calling(self) -> bool:
        """Tell whether a call is still streamed."""
        return any(call.is_open for call in self._waiting)

    def finish(self, *, is_cut: bool) -> None:
        """Close everything that is open; of an answer that `is_cut` a call that is still streamed is left out."""
        for call in [call for call in self._waiting if call.is_open or not call.is_sound]:
            if is_cut:
                self._note_cut(call.name, call.size)
                self._waiting.remove(call)
            elif call.is_open:
                self.note("call_left_open", "repaired", "a call was said to go on and the answer ended well")
            call.is_open = False
        self._show_complete(is_followed=True)
        self._fall_silent()
        self._note_left()

    def _next(self) -> int:
        self._items += 1
        return self._items - 1

    def _message(self) -> _Message:
        message = self._speaking
        if not isinstance(message, _Message):
            self._show_complete(is_followed=True)
            self._fall_silent()
            message = self._speaking = _Message(self._next(), self._ids.new(prefixes.MESSAGE))
            self.events.append(ItemAdded(index=message.index, item=message.item()))
        return message

    def _say(self, message: _Message, text: str) -> None:
        if text and self._has_room(text):
            part = message.add(text)
            self.events.append(TextDelta(index=message.index, text=text, part=part))

    def _think(self, thought: _Reasoning, text: str) -> None:
        if text and self._has_room(text):
            thought.texts.append(text)
            self.events.append(ReasoningDelta(index=thought.index, text=text))

    def _fall_silent(self) -> None:
        """Close the open message or reasoning."""
        speaking, self._speaking = self._speaking, None
        if speaking is None:
            return
        if isinstance(speaking, _Message):
            self._say(speaking, speaking.joiner.finish())
        else:
            self._think(speaking, speaking.joiner.finish())
        self.events.append(ItemDone(index=speaking.index, item=speaking.item()))

    def _continued(self, piece: CallPiece) -> _Call | None:
        """Return the streamed call that a piece goes on with: by id, else the last one unless another one begins."""
        still_open = [call for call in self._waiting if call.is_open]
        if not still_open:
            return None
        by_id = next((call for call in still_open if piece.id and call.id == piece.id), None)
        last = still_open[-1]
        if by_id is not None or (piece.id and last.id):
            return by_id
        goes_on = piece.args is None and piece.name == last.name
        return last if not piece.name or not last.name or goes_on else None

    def _show_complete(self, *, is_followed: bool = False) -> None:
        """Show the calls that are complete; one at the end whose arguments are no object may turn out to be cut."""
        while self._waiting and not self._waiting[0].is_open:
            if len(self._waiting) == 1 and not is_followed and not self._waiting[0].is_sound:
                return
            self._show(self._waiting.pop(0))

    def _show(self, call: _Call) -> None:
        self._fall_silent()
        if not self._has_name(call.name):
            return
        final = call.arguments()
        if call.id and any(said.upstream_id == call.id and _is_alike(said, call, final) for said in self.calls):
            self.note("call_repeated", "dropped", "a call came twice, with its id")
            return
        self._check_arguments(len(final.text.encode("utf-8", "replace")))
        if self._meter.is_over or not self._has_room(final.text):
            return
        begun = CallItem(
            id=self._ids.new(prefixes.CALL_ITEM),
            call_id=self._call_id(call.id, is_needed=False),
            name=call.name,
            upstream_id=call.id or None,
        )
        self._note_repair(final)
        whole = msgspec.structs.replace(begun, arguments=final.text, raw=final.raw, blobs=call.blobs)
        index = self._next()
        self.calls.append(whole)
        self.events += [
            ItemAdded(index=index, item=begun),
            ArgumentsDelta(index=index, text=final.text),
            ItemDone(index=index, item=whole),
        ]
