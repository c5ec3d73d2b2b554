"""Turns calls that a model wrote as text into call items, between a provider's decoder and the engine.

Visible text passes through at once. Recovered calls follow at the end of the answer: only then it is known that the
answer was not cut, and which calls also came in the protocol's own form. Calls that may not be recovered stay text.
Each recovery is noted, and the call keeps what the model wrote.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

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
from treadle.core.ids import CALL, CALL_ITEM
from treadle.core.items import AnyItem, AnyPart, CallItem, MessageItem, ReasoningItem, ResultItem, TextPart, text_of
from treadle.core.json import BadJson, canonical_json, read_json
from treadle.core.memoized import Memo
from treadle.core.plan import Plan
from treadle.core.request import Note, NoteAction, is_json_wanted
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.text_calls.call_building import object_of
from treadle.protocols.text_calls.dialect_grammar import Dialect, Tier
from treadle.protocols.text_calls.dialect_table import BY_ID, DIALECTS
from treadle.protocols.text_calls.scanner import HELD_CHARS_MAX, FoundCalls, Markers, Piece, TextScanner, markers_of
from treadle.protocols.text_calls.schema_values import TextTools, write_arguments

RECOVERED = "call_recovered"
DUPLICATED = "call_duplicated"
NOT_RECOVERED = "call_not_recovered"
MENDED = "arguments_mended"
_ENDS_WELL = frozenset({"done", "calls", "stop_sequence"})
_OBJECT: Any = dict


class RepairRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which dialects are recognised: those of these tiers, and those named; a leading `-` excludes one."""

    tiers: tuple[Tier, ...] = ("native", "marked")
    dialects: tuple[str, ...] = ()
    held_chars_max: int = HELD_CHARS_MAX


@lru_cache(maxsize=256)
def chosen_dialects(
    rules: RepairRules, model: str, *, is_json: bool = False
) -> tuple[tuple[Dialect, ...], frozenset[str]]:
    """Return the dialects to recognise in answers of this model, and the ids of those native to it.

    Where the answer must be JSON, JSON that has no marker is the answer.
    """
    named, left_out = set(rules.dialects), {each[1:] for each in rules.dialects if each.startswith("-")}
    chosen: list[Dialect] = []
    for dialect in DIALECTS:
        is_on = dialect.tier(model) in rules.tiers or dialect.id in named
        if is_on and dialect.id not in left_out and not (is_json and dialect.is_markerless):
            chosen.append(dialect)
    return tuple(chosen), frozenset(each.id for each in chosen if each.tier(model) == "native")


class GivenText:
    """The text of user messages and results: markup that the model only quotes from there is no call.

    Instructions are not searched: a call that repeats an example there to the letter is meant.
    """

    def __init__(self, items: Sequence[AnyItem]) -> None:
        self._items = items
        self._texts: list[str] | None = None

    def has(self, raw: str) -> bool:
        """Return whether a user message or a result holds this, word for word."""
        if self._texts is None:
            messages = (item for item in self._items if isinstance(item, MessageItem) and item.role == "user")
            given = (item for item in self._items if isinstance(item, ResultItem))
            self._texts = [*(text_of(item.content) for item in messages), *(text_of(item.output) for item in given)]
        wanted = raw.strip()
        return any(wanted in text for text in self._texts)


class _Part(msgspec.Struct):
    """One text part of a message: `size` is how much of it came.

    It gets a scanner at the first place where a call may begin, which `stray` finds. So much `passed` before that as
    plain text; `texts` are what is visible of the rest.
    """

    stray: re.Pattern[str]
    scanner: TextScanner | None = None
    size: int = 0
    passed: int = 0
    texts: list[str] = []

    def take(self, text: str) -> bool:
        """Take more text if it can be passed on unchanged at once, and return whether it can."""
        scanner = self.scanner
        if self.stray.search(text) is not None or (scanner is not None and not scanner.is_idle):
            return False
        self.size += len(text)
        if scanner is not None:
            self.texts.append(text)
        return True

    def visible(self, text: str) -> str:
        """Return what is visible of the part, all of which is this text."""
        return text if self.scanner is None else text[: self.passed] + "".join(self.texts)


class _Message(msgspec.Struct):
    """A message that is being streamed. `added` waits until something of the message is visible."""

    added: ItemAdded | None
    parts: dict[int, _Part] = {}
    found: list[FoundCalls] = []

    def has_passed(self, item: MessageItem) -> bool:
        """Return whether the whole message was passed on unchanged, as plain text."""
        for number, part in enumerate(item.content):
            if type(part) is TextPart:
                out = self.parts.get(number)
                if out is None or out.scanner is not None or not out.size or out.size != len(part.text):
                    return False
        return True

    def emit(self, event: ModelEvent, out: list[ModelEvent]) -> None:
        """Emit an event of this message, and before the first one the start of the message."""
        if self.added is not None:
            out.append(self.added)
            self.added = None
        out.append(event)


class _Search(NamedTuple):
    """What is searched in answers of a model by these rules: calls of `tools` in `dialects`, by their markers."""

    rules: RepairRules
    tools: TextTools
    dialects: tuple[Dialect, ...]
    natives: frozenset[str]
    markers: Markers


def _nothing_yet(_: tuple[ToolSpec, ...]) -> dict[tuple[int, str, bool], _Search]:
    return {}


_SEARCHES: Memo[tuple[ToolSpec, ...], dict[tuple[int, str, bool], _Search]] = Memo(_nothing_yet)
"""The searches by the tools that are offered, then by rules, model, and whether the answer must be JSON."""

SEARCHES_MAX = 64
"""How many searches are cached for the same tools."""


def _search(plan: Plan, rules: RepairRules) -> _Search:
    is_json = is_json_wanted(plan.options)
    cached, key = _SEARCHES.of(plan.tools), (id(rules), plan.model, is_json)
    found = cached.get(key)
    if found is not None and found.rules is rules:
        return found
    if len(cached) >= SEARCHES_MAX:
        cached.clear()
    tools = TextTools([spec for spec in plan.tools if spec.kind == "function"])
    dialects, natives = chosen_dialects(rules, plan.model, is_json=is_json)
    found = cached[key] = _Search(rules, tools, dialects, natives, markers_of(dialects, tools.names))
    return found


class Scanner:
    """Finds calls of a plan's tools in the text of one answer."""

    _thoughts: TextScanner | None = None
    _thought_id: str = ""
    _given: GivenText | None = None
    _has_text: bool = False

    def __init__(self, plan: Plan, rules: RepairRules) -> None:
        self._delayed: list[ModelEvent] | None = None
        self._last: tuple[int, int, _Part] | None = None
        self._next_index = 0
        self.search = _search(plan, rules)
        self._items = plan.items
        self._open: dict[int, _Message] = {}
        self._found: list[tuple[str, FoundCalls]] = []
        self._calls: list[tuple[str, str]] = []
        self._thought: list[FoundCalls] = []

    def feed(self, event: ModelEvent) -> list[ModelEvent]:
        """Take one event; return what follows from it."""
        return self.feed_all([event])

    def feed_all(self, events: list[ModelEvent]) -> list[ModelEvent]:
        """Take the events of one read; return what follows from them."""
        out: list[ModelEvent] = []
        for event in events:
            if type(event) is TextDelta and self._last is not None:
                index, number, part = self._last
                text, scanner = event.text, part.scanner
                is_same = event.index == index and event.part == number
                if is_same and part.stray.search(text) is None and (scanner is None or scanner.is_idle):
                    # Nearly every text; the same as `take`, inlined because the call would double its cost.
                    part.size += len(text)
                    if scanner is not None:
                        part.texts.append(text)
                    out.append(event)
                    continue
            if type(event) is ArgumentsDelta and self._delayed is None:
                out.append(event)
            else:
                _FEEDERS[type(event)](self, event, out)
        return out

    def taker(self, event: TextDelta) -> Callable[[str], bool] | None:
        """Return what takes more of the text that this event extended, as long as no other event comes between."""
        last = self._last
        return last[2].take if last is not None and last[:2] == (event.index, event.part) else None

    def _pass(self, event: ModelEvent, out: list[ModelEvent]) -> None:
        out.append(event)

    def _item_added(self, event: ItemAdded, out: list[ModelEvent]) -> None:
        if event.index >= self._next_index:
            self._next_index = event.index + 1
        for index, message in self._open.items():
            self._end_parts(message, index, out)
        item = event.item
        if type(item) is ReasoningItem:
            self._thought_id = item.id
        if type(item) is MessageItem and item.role == "assistant":
            self._open[event.index] = _Message(event)
        else:
            self._emit(event, out)

    def _item_done(self, event: ItemDone, out: list[ModelEvent]) -> None:
        item = event.item
        if type(item) is MessageItem and event.index in self._open:
            self._done(event, item, out)
        elif type(item) is CallItem:
            self._call_done(event, item, out)
        else:
            self._emit(event, out)

    def _delta(self, event: RefusalDelta | ArgumentsDelta, out: list[ModelEvent]) -> None:
        message = self._open.get(event.index)
        if message is None:
            self._emit(event, out)
        else:
            self._end_parts(message, event.index, out)
            message.emit(event, out if self._delayed is None else self._delayed)

    def _reasoning(self, event: ReasoningDelta, out: list[ModelEvent]) -> None:
        if self.search.natives and not event.is_summary:
            self._think(event.text)
        self._emit(event, out)

    def _emit(self, event: ModelEvent, out: list[ModelEvent]) -> None:
        """Emit an event; while a message is delayed until the end of the answer, so is all that follows it."""
        (out if self._delayed is None else self._delayed).append(event)

    def _call_done(self, event: ItemDone, call: CallItem, out: list[ModelEvent]) -> None:
        """Take a call that came in the protocol's own form, and repair arguments that are nearly right."""
        arguments = mended_arguments(call, self.search.tools)
        self._calls.append((call.name, arguments or call.arguments))
        if arguments is None:
            self._emit(event, out)
            return
        raw = call.arguments if call.raw is None else call.raw
        mended = msgspec.structs.replace(call, arguments=arguments, raw=raw, origin="repaired")
        note = Note(
            code=MENDED, action="repaired", message=f"the arguments of {call.name} were not as its schema wants"
        )
        self._emit(Noted(note=note), out)
        self._emit(ItemDone(index=event.index, item=mended), out)

    def _text(self, event: TextDelta, out: list[ModelEvent]) -> None:
        message = self._open.get(event.index)
        if message is None:
            self._emit(event, out)
            return
        text, markers = event.text, self.search.markers
        part = message.parts.get(event.part)
        if part is None:
            if message.parts:
                self._end_parts(message, event.index, out)
            part = message.parts[event.part] = _Part(markers.stray)
        is_plain = part.scanner is None and markers.stray.search(text) is None
        if not is_plain or not (part.size or markers.opening.match(text) is None):
            visible = self._visible(message, part, self._scanner_of(part).feed(text))
            if visible != text:
                event = TextDelta(index=event.index, text=visible, part=event.part, extra=event.extra)
        part.size += len(text)
        if event.text or not text or event.extra is not None:
            message.emit(event, out if self._delayed is None else self._delayed)
        if message.added is None and self._delayed is None and part.size:
            # From here on plain text takes the short way of `feed_all`.
            self._last = (event.index, event.part, part)
        else:
            self._last = None

    def _end_parts(self, message: _Message, index: int, out: list[ModelEvent]) -> None:
        """Emit the text held back in the parts so far, because something else begins that must come after it."""
        for number, part in message.parts.items():
            scanner = part.scanner
            text = "" if scanner is None or scanner.is_idle else self._visible(message, part, scanner.finish())
            if text:
                delta = TextDelta(index=index, text=text, part=number)
                message.emit(delta, out if self._delayed is None else self._delayed)

    def _scanner_of(self, part: _Part) -> TextScanner:
        if part.scanner is None:
            part.passed, part.texts = part.size, []
            search, is_begun = self.search, part.size > 0
            natives, chars_max = search.natives, search.rules.held_chars_max
            part.scanner = TextScanner(
                search.tools, search.dialects, natives=natives, chars_max=chars_max, is_begun=is_begun
            )
        return part.scanner

    def _visible(self, message: _Message, part: _Part, pieces: list[Piece]) -> str:
        """Return the text of these pieces, and collect the calls among them."""
        texts: list[str] = []
        for piece in pieces:
            if isinstance(piece, str):
                texts.append(piece)
            elif not piece.calls:
                continue
            elif self._is_quoted(piece.raw):
                texts.append(piece.raw)
            else:
                message.found.append(piece)
        text = "".join(texts)
        part.texts.append(text)
        return text

    def _is_quoted(self, raw: str) -> bool:
        if self._given is None:
            self._given = GivenText(self._items)
        return self._given.has(raw)

    def _done(self, event: ItemDone, item: MessageItem, out: list[ModelEvent]) -> None:
        """End a message. If calls were found in it, its end is delayed until the end of the answer."""
        message = self._open[event.index]
        if self._delayed is not None:
            out = self._delayed
        content = None if message.has_passed(item) else self._rest_of(message, event.index, item, out)
        del self._open[event.index]
        self._last = None
        if content is None:
            # A part that begins with white space has a scanner, so this text is visible.
            self._has_text = self._has_text or bool(message.parts)
            message.emit(event, out)
            return
        visible = tuple(part for part in content if not isinstance(part, TextPart) or part.text)
        self._has_text = self._has_text or bool(text_of(visible).strip())
        if not message.found:
            done = item if content == item.content else msgspec.structs.replace(item, content=content)
            message.emit(ItemDone(index=event.index, item=done), out)
            return
        self._found += [(item.id, found) for found in message.found]
        self._delayed = [] if self._delayed is None else self._delayed
        if message.added is None or visible or item.blobs:
            done = ItemDone(index=event.index, item=msgspec.structs.replace(item, content=visible))
            message.emit(done, self._delayed)

    def _rest_of(self, message: _Message, index: int, item: MessageItem, out: list[ModelEvent]) -> tuple[AnyPart, ...]:
        """Emit what of a message was not emitted yet, and return its visible content."""
        content: list[AnyPart] = []
        for number, part in enumerate(item.content):
            if not isinstance(part, TextPart):
                content.append(part)
                continue
            streamed = message.parts.get(number)
            rest = part.text[streamed.size if streamed else 0 :]
            if rest:
                self._text(TextDelta(index=index, text=rest, part=number), out)
            scanned = message.parts.get(number)
            if scanned is not None and scanned.scanner is not None:
                text = self._visible(message, scanned, scanned.scanner.finish())
                if text:
                    message.emit(TextDelta(index=index, text=text, part=number), out)
            content.append(_shown(part, scanned.visible(part.text)) if scanned else part)
        return tuple(content)

    def _think(self, text: str) -> None:
        """Scan reasoning: its calls count only if it is the whole answer, and only in the model's own dialect."""
        if self._thoughts is None:
            search = self.search
            own = tuple(each for each in search.dialects if each.id in search.natives)
            self._thoughts = TextScanner(search.tools, own, chars_max=search.rules.held_chars_max)
        if not self._thoughts.passes(text):
            self._thought += [each for each in self._thoughts.feed(text) if isinstance(each, FoundCalls)]

    def _finished(self, event: Finished, out: list[ModelEvent]) -> None:
        if event.stop not in _ENDS_WELL:
            self._failed(event, out)
            return
        if self._delayed is not None:
            out += self._delayed
            self._delayed = None
        if self._thoughts is not None and not (self._found or self._calls or self._has_text):
            self._thought += [each for each in self._thoughts.finish() if isinstance(each, FoundCalls)]
            called = [each for each in self._thought if each.calls and not self._is_quoted(each.raw)]
            self._found += [(self._thought_id, each) for each in called]
        if self._found:
            recovered = self._recovered()
            out += recovered
            if any(isinstance(each, ItemDone) for each in recovered):
                event = msgspec.structs.replace(event, stop="calls", raw_stop=None)
        out.append(event)

    def _recovered(self) -> list[ModelEvent]:
        """Return the calls that were found, without those that also came in the protocol's own form."""
        events: list[ModelEvent] = []
        number = 0
        called = {_signature(*call) for call in self._calls}
        for item_id, found in self._found:
            for place, call in enumerate(found.calls):
                if _signature(call.name, call.arguments) in called:
                    events.append(_noted(DUPLICATED, "dropped", f"{call.name} came as a call too", found))
                    continue
                number += 1
                # Derived from the item around it: the same in a replay, different in every other answer.
                name = f"{item_id.partition('_')[2]}x{number}"
                item = CallItem(
                    id=f"{CALL_ITEM}_{name}",
                    call_id=f"{CALL}_{name}",
                    name=call.name,
                    arguments=call.arguments,
                    origin="guessed" if BY_ID[found.dialect].is_markerless else "recovered",
                    raw=found.raw if place == 0 else None,
                    upstream_id=call.ref or None,
                )
                message = f"{call.name} was called in text ({found.dialect})"
                events.append(_noted(RECOVERED, "repaired", message, found))
                events += self._called(item)
        return events

    def _called(self, item: CallItem) -> list[ModelEvent]:
        index, self._next_index = self._next_index, self._next_index + 1
        started = msgspec.structs.replace(item, arguments="", raw=None)
        return [
            ItemAdded(index=index, item=started),
            ArgumentsDelta(index=index, text=item.arguments),
            ItemDone(index=index, item=item),
        ]

    def _failed(self, event: Finished | Failed | Interrupted, out: list[ModelEvent]) -> None:
        out += self._give_back()
        out.append(event)

    def _give_back(self) -> list[ModelEvent]:
        """Return what was held back as text: the answer was cut, so nothing in it may become a call."""
        events: list[ModelEvent] = []
        for index, message in list(self._open.items()):
            for part, scanned in message.parts.items():
                pieces = scanned.scanner.finish() if scanned.scanner else []
                text = "".join(each if isinstance(each, str) else each.raw for each in pieces)
                text = "".join(each.raw for each in message.found) + text if part == 0 else text
                if text:
                    message.emit(TextDelta(index=index, text=text, part=part), events)
        delayed, self._delayed = self._delayed or [], None
        raw = "".join(found.raw for _, found in self._found)
        if not raw:
            return [*delayed, *events]
        notes = [_noted(NOT_RECOVERED, "kept", "the answer was cut, so that its calls are text", self._found[0][1])]
        return [*notes, *_with_text(delayed, raw, self._next_index, self._found[0][0]), *events]

    @staticmethod
    def feeders() -> "dict[type[ModelEvent], Callable[[Scanner, Any, list[ModelEvent]], None]]":
        """Return the method for each kind of event."""
        return {
            ItemAdded: Scanner._item_added,
            TextDelta: Scanner._text,
            RefusalDelta: Scanner._delta,
            ReasoningDelta: Scanner._reasoning,
            ArgumentsDelta: Scanner._delta,
            ItemDone: Scanner._item_done,
            Noted: Scanner._pass,
            Finished: Scanner._finished,
            Failed: Scanner._failed,
            Interrupted: Scanner._failed,
        }


_FEEDERS = Scanner.feeders()


def mended_arguments(call: CallItem, tools: TextTools) -> str | None:
    """Return a call's arguments repaired: valid JSON, with lists and objects that came as strings parsed.

    None where they are right already, or were cut.
    """
    tool = tools.find(call.name) if call.kind == "function" else None
    if tool is None:
        return None
    try:
        right: Any = read_json(call.arguments)
    except BadJson:
        right = None
    if isinstance(right, _OBJECT):
        made = tool.from_json(right)
        if made is right or made == right:
            return None
    # A misplaced quote or comma may come from a frame that was lost or duplicated, so it is not repaired.
    given = object_of(call.arguments, is_sure=True) if call.arguments.strip() else None
    made = None if given is None else tool.from_json(given)
    return None if made is None or made == right else write_arguments(made)


def _with_text(delayed: list[ModelEvent], raw: str, index: int, item_id: str) -> list[ModelEvent]:
    """Put text back at the end of the last message, or into a new one if there is none."""
    place = next((n for n in range(len(delayed) - 1, -1, -1) if _is_message_done(delayed[n])), None)
    if place is None:
        item = MessageItem(id=item_id, role="assistant", content=(TextPart(text=raw),))
        started = ItemAdded(index=index, item=MessageItem(id=item_id, role="assistant"))
        return [*delayed, started, TextDelta(index=index, text=raw), ItemDone(index=index, item=item)]
    done = delayed[place]
    assert isinstance(done, ItemDone)
    assert isinstance(done.item, MessageItem)
    parts = list(done.item.content)
    last = parts[-1] if parts and isinstance(parts[-1], TextPart) else TextPart(text="")
    parts = [*(parts[:-1] if parts and parts[-1] is last else parts), _shown(last, last.text + raw)]
    out = TextDelta(index=done.index, text=raw, part=len(parts) - 1)
    ended = ItemDone(index=done.index, item=msgspec.structs.replace(done.item, content=tuple(parts)))
    return [*delayed[:place], out, ended, *delayed[place + 1 :]]


def _is_message_done(event: ModelEvent) -> bool:
    return isinstance(event, ItemDone) and isinstance(event.item, MessageItem)


def _shown(part: TextPart, text: str) -> TextPart:
    """Return a part with its visible text; logprobs and annotations do not fit a changed text."""
    return part if part.text == text else msgspec.structs.replace(part, text=text, logprobs=None, annotations=None)


def _signature(name: str, arguments: str) -> tuple[str, bytes]:
    try:
        return name, canonical_json(read_json(arguments or "{}"))
    except BadJson:
        return name, arguments.encode("utf-8", "surrogatepass")


def _noted(code: str, action: NoteAction, message: str, found: FoundCalls) -> Noted:
    return Noted(note=Note(code=code, action=action, message=message, field=found.dialect))


def scanner_of(plan: Plan, rules: RepairRules | None) -> Scanner | None:
    """Return the scanner for an answer to this plan; None if no tools may be called.

    The closing answer at a limit is scanned too: its calls are refused, but their markup must not be shown.
    """
    if rules is None or not plan.tools or (plan.tool_choice.mode == "none" and not plan.is_closing):
        return None
    scanner = Scanner(plan, rules)
    return scanner if scanner.search.tools.names else None
