"""The way back: events of an upstream in the terms of the plan that was asked, as if nothing had been adapted.

Only names, kinds and namespaces of calls change here, and the arguments of custom tools. It holds back nothing but
the start of a custom call's arguments, and a call whose name is only the beginning of a tool's. Faults of a whole
answer that no single event shows are told, not judged.
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
"""The words by which it says that there are calls."""

_STRAY_NAME: Fault = ("name_stray", "a tool's name came with a prefix or in another case")

_PASSING: frozenset[type[ModelEvent]] = frozenset({TextDelta, RefusalDelta, ReasoningDelta, Noted, Failed, Interrupted})
"""Events in which nothing was adapted and nothing can be wrong."""

_PASSING_UNWRAPPED = _PASSING | {ArgumentsDelta}
"""Those where no tool went out as another kind."""

_NOTHING: frozenset[type[ModelEvent]] = frozenset()
"""Those while a name may still go on."""


class Scan(Protocol):
    """What looks for calls in the text of an answer."""

    def feed_all(self, events: list[ModelEvent]) -> list[ModelEvent]:
        """Take the events of one read; return what follows from them."""
        ...

    def taker(self, event: TextDelta) -> Take | None:
        """Return what takes more of a text of which this was told last, as long as no other event comes between."""
        ...


_NAMES: Memo[Mapping[str, ToolSpec], frozenset[str]] = Memo(frozenset)


class Restorer(msgspec.Struct):
    """Restores the events of one model call.

    `specs` are the tools of the plan by their names, `wrapped` the names of those that went out as functions. With
    `mends_names` a name that no tool has is read as the tool it differs from by a prefix or by case. `calls` have
    begun, those of `wrapped` tools that are not over are unwrapped.
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
        """Return the names of the tools as the upstream was told them."""
        names = _NAMES.of(self.specs)
        return names if not self.names.count else frozenset([self.names.there(name) for name in names])

    def feed(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the event as the plan's own, with what has to be said about it."""
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
            restored, told = self._restored(event.index, event.item)
            return [*told, event if restored is event.item else ItemAdded(index=event.index, item=restored)]
        if type(event) is ItemDone and type(event.item) is CallItem:
            if self._is_own(event.item):
                self.calls.add(event.index)
                faults = self._faults(event.item)
                return [*[_noted(*fault) for fault in faults], event] if faults else [event]
            restored, told = self._restored(event.index, event.item)
            return [*told, *self._done(event.index, restored)]
        return [event]

    def _is_own(self, call: CallItem) -> bool:
        """Tell whether a call is as the plan says it, which it is where nothing had to be adapted."""
        spec = None if self.names.count or self.wrapped or self.is_single else self.specs.get(call.name)
        return spec is not None and spec.namespace == call.namespace

    def _restored(self, index: int, call: CallItem) -> tuple[CallItem, list[ModelEvent]]:
        told: list[ModelEvent] = []
        name = self.names.back(call.name) if self.names.count else call.name
        if self.mends_names and name not in self.specs and (meant := self._meant(name)) is not None:
            told += self._told(index, "name_mended", "repaired", f"the model wrote the tool's name as {name[:80]!r}")
            name = meant
        if self.is_single and self.calls:
            told += self._told(index, "parallel_ignored", "kept", "the model made several calls though asked for one")
        self.calls.add(index)
        spec = self.specs.get(name)
        namespace = call.namespace or (spec.namespace if spec else None)
        if name not in self.wrapped or call.kind == "custom":
            if name == call.name and namespace == call.namespace:
                return call, told
            return msgspec.structs.replace(call, name=name, namespace=namespace), told
        self.unwrappers.setdefault(index, Unwrapper())
        return msgspec.structs.replace(call, name=name, namespace=namespace, kind="custom"), told

    def _done(self, index: int, call: CallItem) -> list[ModelEvent]:
        """Return the end of a call; of a wrapped one with the text that was not passed on yet."""
        unwrapper = self.unwrappers.pop(index, None) if self.unwrappers else None
        if unwrapper is None:
            done = ItemDone(index=index, item=call)
            faults = self._faults(call)
            return [*[_noted(*fault) for fault in faults], done] if faults else [done]
        late = unwrapper.feed(call.arguments[unwrapper.chars_fed :])
        final = unwrapper.finish()
        if final.is_cut:
            # Free text has no end of its own: a client would run what there is of it.
            return [Failed(error=BrokenStream("The upstream's answer is damaged: a call's input has no end.").info)]
        told: list[ModelEvent] = []
        if late + final.rest:
            told.append(ArgumentsDelta(index=index, text=late + final.rest))
        raw = call.raw
        if not final.is_clean:
            raw = raw or call.arguments
            message = "the model wrote a custom tool's input otherwise than asked"
            told.append(Noted(note=Note(code="custom_input", action="repaired", message=message)))
        done = msgspec.structs.replace(call, arguments=final.text, raw=raw)
        return [*told, ItemDone(index=index, item=done)]

    def _faults(self, call: CallItem) -> list[Fault]:
        """Return what is wrong with a call; a name that was put right is told already."""
        if call.name == UNNAMED:
            return []
        if call.name not in self.specs and self._meant(call.name) is not None:
            return [_STRAY_NAME]
        return call_faults(call, self.specs)

    def _told(self, index: int, code: str, action: NoteAction, message: str) -> list[ModelEvent]:
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
    """Looks at the events of one model call as they pass."""

    _has_calls: bool = False
    _has_content: bool = False
    _has_thoughts: bool = False
    _faulty: frozenset[Fault] = frozenset()

    def end_item(self, event: ItemDone, told: list[ModelEvent]) -> None:
        """Tell that an item is done, before it what is wrong with it."""
        item = event.item
        if type(item) is CallItem:
            self._has_calls = True
        elif type(item) is MessageItem:
            self._has_content = self._has_content or bool(item.content)
            self._note(item_faults(item), told)
        elif type(item) is ReasoningItem:
            self._has_thoughts = True
            self._note(item_faults(item), told)
        else:
            self._has_content = True
        told.append(event)

    def _note(self, faults: Sequence[Fault], told: list[ModelEvent]) -> None:
        """Tell faults that this answer did not have before."""
        if faults:
            fresh = [fault for fault in faults if fault not in self._faulty]
            self._faulty = self._faulty.union(fresh)
            told += [_noted(*fault) for fault in fresh]

    def end(self, event: Finished, told: list[ModelEvent]) -> None:
        """Tell the end of the answer, before it what is wrong with all of it."""
        if event.usage is None:
            told.append(_noted("usage_missing", "the upstream did not say what it used"))
        told += self._contradictions(event)
        told.append(event)

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
    """A decoder whose events are restored and watched as they come; before that, `scan` makes calls of text.

    All of it is one object, because every read of the network passes through. A text that goes on alone takes a short
    way, its `flow`, for as long as all stages would let it pass.
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
        """Return what takes the next pieces of a text of which this one came alone."""
        take = None if self._scan is None else self._scan.taker(event)
        if not isinstance(self._decoder, AnswerDecoder) or (take is None and self._scan is not None):
            return None
        return self._decoder.flow(take)

    def _all(self, events: list[ModelEvent]) -> list[ModelEvent]:
        told: list[ModelEvent] = []
        for event in events:
            if self._is_over:
                break
            if type(event) in self._passing:
                told.append(event)
            elif self._pieces is not None:
                for piece in self._pieces.feed(event):
                    self._own(piece, told)
            elif type(event) is ItemDone and type(event.item) is not CallItem:
                self._watcher.end_item(event, told)
            elif type(event) is Finished:
                self._watcher.end(event, told)
            elif type(event) is not ItemAdded:
                self._own(event, told)
            elif type(event.item) is not CallItem:
                told.append(event)
            else:
                for piece in self._begun(event, event.item.name):
                    self._own(piece, told)
        return told

    def _begun(self, event: ModelEvent, name: str) -> list[ModelEvent]:
        """Return the begin of a call; from the first whose name may only be the beginning of one, names are joined."""
        if name in self._restorer.specs:
            return [event]
        pieces = NamePieces(self._restorer.sent_names)
        whole = pieces.feed(event)
        if pieces.is_holding:
            self._pieces, self._passing = pieces, _NOTHING
        return whole

    def _own(self, event: ModelEvent, told: list[ModelEvent]) -> None:
        """Tell the event restored, and what is wrong with it or with the answer that it ends."""
        for own in self._restorer.feed(event):
            if type(own) is ItemDone:
                self._watcher.end_item(own, told)
            elif type(own) is Finished:
                self._watcher.end(own, told)
            else:
                self._is_over = self._is_over or type(own) is Failed
                told.append(own)
