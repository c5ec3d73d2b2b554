"""Translates an upstream's events back into the terms of the original plan, as if nothing had been adapted.

Only names, kinds and namespaces of calls change here, and the arguments of custom tools. Held back are only the start
of a custom call's arguments, and a call whose name is still a prefix of a tool's. Faults that only the whole answer
shows are noted, not judged.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.core.errors import BrokenStream
from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    Interrupted,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from treadle.core.items import CallItem, MessageItem, ReasoningItem
from treadle.core.memoized import Memo
from treadle.core.request import Note, NoteAction
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.codec_interfaces import Decoder
from treadle.protocols.decoding.answer_meter import UNNAMED
from treadle.protocols.decoding.call_faults import Fault, call_faults, item_faults
from treadle.protocols.decoding.call_name_pieces import NamePieces
from treadle.protocols.decoding.stream_decoder import AnswerDecoder, Flow, Take
from treadle.protocols.translation.custom_tools import Unwrapper
from treadle.protocols.translation.name_mapping import Names

_PREFIXES = ("functions.", "tools.", "default_api.", "default_api:")
"""What models put before a tool's name when their template showed it in a namespace."""

_ENDS = frozenset({"stop", "end_turn", "stop_sequence"})
"""The words by which a protocol says that the model has nothing left to do; Gemini's STOP also ends a turn of calls."""

_CALLED = frozenset({"tool_calls", "function_call", "tool_use"})
"""The words by which a protocol says that there are calls."""

_STRAY_NAME: Fault = ("name_stray", "a tool's name came with a prefix or in another case")

_PASSING: frozenset[type[ModelEvent]] = frozenset({TextDelta, RefusalDelta, ReasoningDelta, Noted, Failed, Interrupted})
"""Events that need no restoring and no check."""

_PASSING_UNWRAPPED = _PASSING | {ArgumentsDelta}
"""The same where no tool was sent as another kind."""

_NOTHING: frozenset[type[ModelEvent]] = frozenset()
"""None, while more of a name may come."""


class Scan(Protocol):
    """Finds calls in the text of an answer."""

    def feed_all(self, events: list[ModelEvent]) -> list[ModelEvent]:
        """Take the events of one read; return what follows from them."""
        ...

    def taker(self, event: TextDelta) -> Take | None:
        """Return what takes more of the text that this event extended, as long as no other event comes between."""
        ...


_NAMES: Memo[Mapping[str, ToolSpec], frozenset[str]] = Memo(frozenset)


class Restorer(msgspec.Struct):
    """Restores the events of one model call.

    `specs` are the tools of the plan by their names, `wrapped` the names of those that were sent as functions. With
    `mends_names` a name that no tool has is read as the tool it differs from by a prefix or by case. `calls` are the
    indexes of calls that started, `unwrappers` belong to unfinished calls of `wrapped` tools.
    """

    names: Names
    specs: Mapping[str, ToolSpec]
    wrapped: frozenset[str]
    mends_names: bool = False
    is_single: bool = False
    calls: set[int] = set()
    unwrappers: dict[int, Unwrapper] = {}

    @property
    def sent_names(self) -> frozenset[str]:
        """Return the names of the tools as they were sent to the upstream."""
        names = _NAMES.of(self.specs)
        return names if not self.names.count else frozenset([self.names.there(name) for name in names])

    def feed(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the event in the plan's terms, with the notes about it."""
        if type(event) is ArgumentsDelta:
            unwrapper = self.unwrappers.get(event.index)
            if unwrapper is None:
                return [event]
            text = unwrapper.feed(event.text)
            return [ArgumentsDelta(index=event.index, text=text)] if text else []
        if type(event) is ItemAdded and type(event.item) is CallItem:
            if self._is_own(event.item):
                self.calls.add(event.index)
                return [event]
            restored, out = self._restored(event.index, event.item)
            return [*out, event if restored is event.item else ItemAdded(index=event.index, item=restored)]
        if type(event) is ItemDone and type(event.item) is CallItem:
            if self._is_own(event.item):
                self.calls.add(event.index)
                faults = self._faults(event.item)
                return [*[_noted(*fault) for fault in faults], event] if faults else [event]
            restored, out = self._restored(event.index, event.item)
            return [*out, *self._done(event.index, restored)]
        return [event]

    def _is_own(self, call: CallItem) -> bool:
        """Return whether a call needs no restoring, because nothing was adapted."""
        spec = None if self.names.count or self.wrapped or self.is_single else self.specs.get(call.name)
        return spec is not None and spec.namespace == call.namespace

    def _restored(self, index: int, call: CallItem) -> tuple[CallItem, list[ModelEvent]]:
        out: list[ModelEvent] = []
        name = self.names.back(call.name) if self.names.count else call.name
        if self.mends_names and name not in self.specs and (meant := self._meant(name)) is not None:
            out += self._note_once(
                index, "name_mended", "repaired", f"the model wrote the tool's name as {name[:80]!r}"
            )
            name = meant
        if self.is_single and self.calls:
            out += self._note_once(
                index, "parallel_ignored", "kept", "the model made several calls though asked for one"
            )
        self.calls.add(index)
        spec = self.specs.get(name)
        namespace = call.namespace or (spec.namespace if spec else None)
        if name not in self.wrapped or call.kind == "custom":
            if name == call.name and namespace == call.namespace:
                return call, out
            return msgspec.structs.replace(call, name=name, namespace=namespace), out
        self.unwrappers.setdefault(index, Unwrapper())
        return msgspec.structs.replace(call, name=name, namespace=namespace, kind="custom"), out

    def _done(self, index: int, call: CallItem) -> list[ModelEvent]:
        """Return the end of a call; of a wrapped one with the text that is still held back."""
        unwrapper = self.unwrappers.pop(index, None) if self.unwrappers else None
        if unwrapper is None:
            done = ItemDone(index=index, item=call)
            faults = self._faults(call)
            return [*[_noted(*fault) for fault in faults], done] if faults else [done]
        late = unwrapper.feed(call.arguments[unwrapper.chars_fed :])
        final = unwrapper.finish()
        if final.is_cut:
            # Free text shows no end, so a client would run a truncated input.
            return [Failed(error=BrokenStream("The upstream's answer is damaged: a call's input has no end.").info)]
        out: list[ModelEvent] = []
        if late + final.rest:
            out.append(ArgumentsDelta(index=index, text=late + final.rest))
        raw = call.raw
        if not final.is_clean:
            raw = raw or call.arguments
            message = "the model wrote a custom tool's input otherwise than asked"
            out.append(Noted(note=Note(code="custom_input", action="repaired", message=message)))
        done = msgspec.structs.replace(call, arguments=final.text, raw=raw)
        return [*out, ItemDone(index=index, item=done)]

    def _faults(self, call: CallItem) -> list[Fault]:
        """Return what is wrong with a call; a repaired name is already noted."""
        if call.name == UNNAMED:
            return []
        if call.name not in self.specs and self._meant(call.name) is not None:
            return [_STRAY_NAME]
        return call_faults(call, self.specs)

    def _note_once(self, index: int, code: str, action: NoteAction, message: str) -> list[ModelEvent]:
        """Return a note on a call, once."""
        return [] if index in self.calls else [Noted(note=Note(code=code, action=action, message=message))]

    def _meant(self, name: str) -> str | None:
        """Return the one offered tool that a stray name stands for."""
        for prefix in _PREFIXES:
            bare = self.names.back(name.removeprefix(prefix))
            if bare != name and bare in self.specs:
                return bare
        same = [known for known in self.specs if known.casefold() == name.casefold()]
        return same[0] if len(same) == 1 else None


class Watcher:
    """Checks the events of one model call as they pass."""

    _has_calls: bool = False
    _has_content: bool = False
    _has_thoughts: bool = False
    _faulty: frozenset[Fault] = frozenset()

    def end_item(self, event: ItemDone, out: list[ModelEvent]) -> None:
        """Emit the end of an item, after notes on its faults."""
        item = event.item
        if type(item) is CallItem:
            self._has_calls = True
        elif type(item) is MessageItem:
            self._has_content = self._has_content or bool(item.content)
            self._note(item_faults(item), out)
        elif type(item) is ReasoningItem:
            self._has_thoughts = True
            self._note(item_faults(item), out)
        else:
            self._has_content = True
        out.append(event)

    def _note(self, faults: Sequence[Fault], out: list[ModelEvent]) -> None:
        """Emit notes on faults that this answer did not have before."""
        if faults:
            fresh = [fault for fault in faults if fault not in self._faulty]
            self._faulty = self._faulty.union(fresh)
            out += [_noted(*fault) for fault in fresh]

    def end(self, event: Finished, out: list[ModelEvent]) -> None:
        """Emit the end of the answer, after notes on faults of the whole."""
        if event.usage is None:
            out.append(_noted("usage_missing", "the upstream did not say what it used"))
        out += self._contradictions(event)
        out.append(event)

    def _contradictions(self, end: Finished) -> list[ModelEvent]:
        if end.raw_stop in (_ENDS if self._has_calls else _CALLED):
            calls = "calls" if self._has_calls else "no calls"
            return [_noted("stop_contradicts", f"the answer has {calls} and ends with {end.raw_stop}")]
        if self._has_calls:
            return []
        if self._has_content or end.stop != "done":
            return []
        if self._has_thoughts:
            return [_noted("reasoning_only", "the answer is all thoughts")]
        return [_noted("empty_answer", "there is nothing in the answer")]


def _noted(code: str, message: str) -> Noted:
    return Noted(note=Note(code=code, action="kept", message=message))


class RestoringDecoder:
    """Restores and checks the events of a decoder; before that, `scan` turns calls in text into call items.

    These stages are one object, because every network read passes through. Text that streams alone takes a fast path,
    its `flow`, as long as all stages would pass it unchanged.
    """

    def __init__(self, decoder: Decoder, restorer: Restorer, scan: Scan | None = None) -> None:
        self._flow: Flow | None = None
        self._pieces: NamePieces | None = None
        self._decoder = decoder
        self._restorer = restorer
        self._scan = scan
        self._watcher = Watcher()
        self._passing = _PASSING if restorer.wrapped else _PASSING_UNWRAPPED
        self._is_over = False

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these bytes complete."""
        if self._flow is not None:
            piece = self._flow(data)
            if piece is not None:
                return [piece]
            self._flow = None
        if self._is_over:
            return []
        events = self._decoder.feed(data)
        if self._scan is not None:
            events = self._scan.feed_all(events)
        if not self._passing.issuperset(map(type, events)):
            return self._all(events)
        if len(events) == 1 and type(events[0]) is TextDelta:
            self._flow = self._flow_of(events[0])
        return events

    def finish(self) -> list[ModelEvent]:
        """Return what the end of the bytes makes of them."""
        if self._is_over:
            return []
        events = self._decoder.finish()
        return self._all(events if self._scan is None else self._scan.feed_all(events))

    def _flow_of(self, event: TextDelta) -> Flow | None:
        """Return the fast path for the next pieces of a text of which this one came alone."""
        take = None if self._scan is None else self._scan.taker(event)
        if not isinstance(self._decoder, AnswerDecoder) or (take is None and self._scan is not None):
            return None
        return self._decoder.flow(take)

    def _all(self, events: list[ModelEvent]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for event in events:
            if self._is_over:
                break
            if type(event) in self._passing:
                out.append(event)
            elif self._pieces is not None:
                for piece in self._pieces.feed(event):
                    self._own(piece, out)
            elif type(event) is ItemDone and type(event.item) is not CallItem:
                self._watcher.end_item(event, out)
            elif type(event) is Finished:
                self._watcher.end(event, out)
            elif type(event) is not ItemAdded:
                self._own(event, out)
            elif type(event.item) is not CallItem:
                out.append(event)
            else:
                for piece in self._started(event, event.item.name):
                    self._own(piece, out)
        return out

    def _started(self, event: ModelEvent, name: str) -> list[ModelEvent]:
        """Return the start of a call; once a name may be a prefix of another, its pieces are joined."""
        if name in self._restorer.specs:
            return [event]
        pieces = NamePieces(self._restorer.sent_names)
        whole = pieces.feed(event)
        if pieces.is_holding:
            self._pieces, self._passing = pieces, _NOTHING
        return whole

    def _own(self, event: ModelEvent, out: list[ModelEvent]) -> None:
        """Emit the restored event, with notes on its faults or on those of the answer that it ends."""
        for own in self._restorer.feed(event):
            if type(own) is ItemDone:
                self._watcher.end_item(own, out)
            elif type(own) is Finished:
                self._watcher.end(own, out)
            else:
                self._is_over = self._is_over or type(own) is Failed
                out.append(own)
