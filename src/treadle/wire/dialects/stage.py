"""The stage between a decoder and the engine: model events in, the same out, calls in their text made calls.

Visible text flows through. Recovered calls follow at the end of the answer, because only then it is known that the
answer was not cut and which calls also came in the protocol's own way. Where they may not become calls their text is
given back. What was recovered is said as a note, and the call keeps what the model wrote.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from treadle.canon.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    Interrupted,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    TextDelta,
)
from treadle.canon.ids import CALL, CALL_ITEM
from treadle.canon.items import AnyItem, AnyPart, CallItem, MessageItem, ResultItem, TextPart, text_of
from treadle.canon.json import BadJson, canonical_json, read_json
from treadle.canon.memo import Memo
from treadle.canon.plan import Plan
from treadle.canon.request import Note, NoteAction
from treadle.canon.tools import ToolSpec
from treadle.wire.codec import Decoder
from treadle.wire.dialects.calls import object_of
from treadle.wire.dialects.grammar import Dialect, Tier
from treadle.wire.dialects.table import BY_ID, DIALECTS
from treadle.wire.dialects.text import HELD_CHARS_MAX, Found, Piece, TextScanner
from treadle.wire.dialects.values import Tools, write_arguments

RECOVERED = "call_recovered"
DUPLICATED = "call_duplicated"
NOT_RECOVERED = "call_not_recovered"
MENDED = "arguments_mended"
_ENDS_WELL = frozenset({"done", "calls", "stop_sequence"})


class RepairRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which dialects are looked for: those of these tiers, and those named; a leading `-` leaves one out."""

    tiers: tuple[Tier, ...] = ("native", "marked")
    dialects: tuple[str, ...] = ()
    held_chars_max: int = HELD_CHARS_MAX


@lru_cache(maxsize=256)
def chosen_dialects(
    rules: RepairRules, model: str, *, is_json: bool = False
) -> tuple[tuple[Dialect, ...], frozenset[str]]:
    """Return the dialects to look for in answers of this model, and the ids of those native to it.

    Where the answer shall be JSON, JSON that has no marker is the answer.
    """
    named, left_out = set(rules.dialects), {each[1:] for each in rules.dialects if each.startswith("-")}
    chosen: list[Dialect] = []
    for dialect in DIALECTS:
        is_on = dialect.tier(model) in rules.tiers or dialect.id in named
        if is_on and dialect.id not in left_out and not (is_json and dialect.is_markerless):
            chosen.append(dialect)
    return tuple(chosen), frozenset(each.id for each in chosen if each.tier(model) == "native")


class Heard:
    """What users and results gave the model to read: text that it only repeats is no call.

    Examples in instructions are none of that: what follows them to the letter is meant.
    """

    def __init__(self, items: Sequence[AnyItem]) -> None:
        self._items = items
        self._texts: list[str] | None = None

    def has(self, raw: str) -> bool:
        """Tell whether a user or a result said this, word for word."""
        if self._texts is None:
            said = (item for item in self._items if isinstance(item, MessageItem) and item.role == "user")
            given = (item for item in self._items if isinstance(item, ResultItem))
            self._texts = [*(text_of(item.content) for item in said), *(text_of(item.output) for item in given)]
        wanted = raw.strip()
        return any(wanted in text for text in self._texts)


class _Part:
    """One part of a message: its scanner, how much of it came, and what of it is visible."""

    __slots__ = ("scanner", "size", "texts")

    def __init__(self, scanner: TextScanner) -> None:
        self.scanner = scanner
        self.size = 0
        self.texts: list[str] = []


class _Message:
    """A message that is being said: its parts, and what was found in it."""

    __slots__ = ("added", "found", "parts")

    def __init__(self, added: ItemAdded) -> None:
        self.added: ItemAdded | None = added
        self.parts: dict[int, _Part] = {}
        self.found: list[Found] = []

    def told(self, events: list[ModelEvent]) -> list[ModelEvent]:
        """Return events of this message, its begin before the first of them."""
        if self.added is None or not events:
            return events
        added, self.added = self.added, None
        return [added, *events]


def _callable(tools: tuple[ToolSpec, ...]) -> Tools:
    return Tools([spec for spec in tools if spec.kind == "function"])


_TOOLS: Memo[tuple[ToolSpec, ...], Tools] = Memo(_callable)


class Scanner:
    """Looks for calls in the text of one answer."""

    def __init__(self, plan: Plan, rules: RepairRules, *, is_json: bool = False) -> None:
        self._tools = _TOOLS.of(plan.tools)
        self._dialects, self._natives = chosen_dialects(rules, plan.model, is_json=is_json)
        self._chars_max = rules.held_chars_max
        self._heard = Heard(plan.items)
        self._open: dict[int, _Message] = {}
        self._late: list[ModelEvent] | None = None
        self._found: list[tuple[str, Found]] = []
        self._calls: set[tuple[str, bytes]] = set()
        self._thoughts: TextScanner | None = None
        self._thought: list[Found] = []
        self._has_text = False
        self._last: tuple[int, int, _Part] | None = None
        self._next_index = 0

    def feed(self, event: ModelEvent) -> list[ModelEvent]:
        """Take one event; return what follows from it."""
        self._last = None
        match event:
            case TextDelta():
                return self._later(self._text(event))
            case ItemAdded(item=MessageItem(role="assistant")):
                self._next_index = max(self._next_index, event.index + 1)
                self._open[event.index] = _Message(event)
                return []
            case ItemDone(item=MessageItem() as item) if event.index in self._open:
                return self._done(event.index, item)
            case ReasoningDelta():
                self._think(event)
                return self._later([event])
            case Finished():
                return self._finished(event)
            case Failed() | Interrupted():
                return [*self._give_back(), event]
            case Noted():
                return [event]
            case _:
                return self._later(self._other(event))

    def feed_all(self, events: list[ModelEvent]) -> list[ModelEvent]:
        """Take the events of one read; return what follows from them."""
        told: list[ModelEvent] = []
        for event in events:
            last = self._last
            if last is not None and type(event) is TextDelta and event.index == last[0] and event.part == last[1]:
                part, text = last[2], event.text
                if part.scanner.passes(text):
                    part.size += len(text)
                    part.texts.append(text)
                    told.append(event)
                    continue
            told += self.feed(event)
        return told

    def _later(self, events: list[ModelEvent]) -> list[ModelEvent]:
        """Keep events behind a message that waits for the end of the answer."""
        if self._late is None:
            return events
        self._late += events
        return []

    def _other(self, event: ModelEvent) -> list[ModelEvent]:
        index = getattr(event, "index", -1)
        self._next_index = max(self._next_index, index + 1)
        if isinstance(event, ItemDone) and isinstance(event.item, CallItem):
            return self._call_done(event, event.item)
        message = self._open.get(index)
        return message.told([event]) if message else [event]

    def _call_done(self, event: ItemDone, call: CallItem) -> list[ModelEvent]:
        """Take a call that came in the protocol's own way; arguments that are nearly right are made right."""
        arguments = mended_arguments(call, self._tools)
        self._calls.add(_signature(call.name, arguments or call.arguments))
        if arguments is None:
            return [event]
        raw = call.arguments if call.raw is None else call.raw
        mended = msgspec.structs.replace(call, arguments=arguments, raw=raw, origin="repaired")
        note = Note(
            code=MENDED, action="repaired", message=f"the arguments of {call.name} were not as its schema wants"
        )
        return [Noted(note=note), ItemDone(index=event.index, item=mended)]

    def _text(self, event: TextDelta) -> list[ModelEvent]:
        message = self._open.get(event.index)
        if message is None:
            return [event]
        part = message.parts.get(event.part)
        if part is None:
            part = message.parts[event.part] = _Part(self._scanner())
        part.size += len(event.text)
        visible = self._visible(message, part, part.scanner.feed(event.text))
        # Text that passes as it is from here on does not come this way any more.
        self._last = (event.index, event.part, part) if message.added is None and self._late is None else None
        if visible == event.text or (not visible and not event.text):
            return message.told([event])
        if event.extra is not None:
            return message.told([TextDelta(index=event.index, text=visible, part=event.part, extra=event.extra)])
        return message.told([TextDelta(index=event.index, text=visible, part=event.part)]) if visible else []

    def _scanner(self) -> TextScanner:
        return TextScanner(self._tools, self._dialects, natives=self._natives, chars_max=self._chars_max)

    def _visible(self, message: _Message, part: _Part, pieces: list[Piece]) -> str:
        """Return the text of these pieces, and keep the calls among them."""
        texts: list[str] = []
        for piece in pieces:
            if isinstance(piece, str):
                texts.append(piece)
            elif not piece.calls:
                continue
            elif self._heard.has(piece.raw):
                texts.append(piece.raw)
            else:
                message.found.append(piece)
        text = "".join(texts)
        part.texts.append(text)
        return text

    def _done(self, index: int, item: MessageItem) -> list[ModelEvent]:
        """End a message: what was held is told; where calls were found its end waits for that of the answer."""
        message = self._open.pop(index)
        events: list[ModelEvent] = []
        content: list[AnyPart] = []
        for number, part in enumerate(item.content):
            if not isinstance(part, TextPart):
                content.append(part)
                continue
            begun = message.parts.get(number)
            rest = part.text[begun.size if begun else 0 :]
            if rest:
                events += self._text_in(message, index, number, rest)
            events += self._rest_of(message, index, number)
            scanned = message.parts.get(number)
            content.append(_shown(part, "".join(scanned.texts)) if scanned else part)
        visible = tuple(part for part in content if not isinstance(part, TextPart) or part.text)
        self._has_text = self._has_text or bool(text_of(visible).strip())
        if not message.found:
            kept = item if tuple(content) == item.content else msgspec.structs.replace(item, content=tuple(content))
            return self._later(message.told([*events, ItemDone(index=index, item=kept)]))
        self._found += [(item.id, found) for found in message.found]
        done = ItemDone(index=index, item=msgspec.structs.replace(item, content=visible))
        told = self._later(message.told(events))
        is_empty = message.added is not None and not visible and not item.blobs
        late: list[ModelEvent] = [] if is_empty else message.told([done])
        self._late = [*(self._late or []), *late]
        return told

    def _text_in(self, message: _Message, index: int, part: int, text: str) -> list[ModelEvent]:
        """Take text of a whole message that no delta told."""
        self._open[index] = message
        events = self._text(TextDelta(index=index, text=text, part=part))
        del self._open[index]
        return events

    def _rest_of(self, message: _Message, index: int, part: int) -> list[ModelEvent]:
        scanned = message.parts.get(part)
        text = self._visible(message, scanned, scanned.scanner.finish()) if scanned else ""
        return message.told([TextDelta(index=index, text=text, part=part)]) if text else []

    def _think(self, event: ReasoningDelta) -> None:
        """Read reasoning along: it calls only where it is all of the answer, and in the model's own dialect."""
        if event.is_summary or not self._natives:
            return
        if self._thoughts is None:
            own = tuple(each for each in self._dialects if each.id in self._natives)
            self._thoughts = TextScanner(self._tools, own, chars_max=self._chars_max)
        if not self._thoughts.passes(event.text):
            self._thought += [each for each in self._thoughts.feed(event.text) if isinstance(each, Found)]

    def _finished(self, event: Finished) -> list[ModelEvent]:
        if event.stop not in _ENDS_WELL:
            return [*self._give_back(), event]
        late, self._late = self._late or [], None
        if self._thoughts is not None and not (self._found or self._calls or self._has_text):
            self._thought += [each for each in self._thoughts.finish() if isinstance(each, Found)]
            self._found += [("", each) for each in self._thought if each.calls and not self._heard.has(each.raw)]
        recovered = self._recovered()
        if any(isinstance(each, ItemDone) for each in recovered):
            event = msgspec.structs.replace(event, stop="calls", raw_stop=None)
        return [*late, *recovered, event]

    def _recovered(self) -> list[ModelEvent]:
        """Return the calls that were found, but for those that came in the protocol's own way too."""
        events: list[ModelEvent] = []
        number = 0
        for message_id, found in self._found:
            for place, call in enumerate(found.calls):
                if _signature(call.name, call.arguments) in self._calls:
                    events.append(_noted(DUPLICATED, "dropped", f"{call.name} came as a call too", found))
                    continue
                number += 1
                name = f"{message_id.partition('_')[2] or self._next_index}x{number}"
                item = CallItem(
                    id=f"{CALL_ITEM}_{name}",
                    call_id=f"{CALL}_{name}",
                    name=call.name,
                    arguments=call.arguments,
                    origin="guessed" if BY_ID[found.dialect].is_markerless else "recovered",
                    raw=found.raw if place == 0 else None,
                    upstream_id=call.ref or None,
                )
                events.append(_noted(RECOVERED, "repaired", f"{call.name} was called in text ({found.dialect})", found))
                events += self._told(item)
        return events

    def _told(self, item: CallItem) -> list[ModelEvent]:
        index, self._next_index = self._next_index, self._next_index + 1
        begun = msgspec.structs.replace(item, arguments="", raw=None)
        return [
            ItemAdded(index=index, item=begun),
            ArgumentsDelta(index=index, text=item.arguments),
            ItemDone(index=index, item=item),
        ]

    def _give_back(self) -> list[ModelEvent]:
        """Return what is held as the text it was: the answer was cut, so that nothing in it may become a call."""
        events: list[ModelEvent] = []
        for index, message in list(self._open.items()):
            for part, scanned in message.parts.items():
                pieces = scanned.scanner.finish()
                text = "".join(each if isinstance(each, str) else each.raw for each in pieces)
                text = "".join(each.raw for each in message.found) + text if part == 0 else text
                events += message.told([TextDelta(index=index, text=text, part=part)]) if text else []
        late, self._late = self._late or [], None
        raw = "".join(found.raw for _, found in self._found)
        if not raw:
            return [*late, *events]
        notes = [_noted(NOT_RECOVERED, "kept", "the answer was cut, so that its calls are text", self._found[0][1])]
        return [*notes, *_with_text(late, raw, self._next_index), *events]


def mended_arguments(call: CallItem, tools: Tools) -> str | None:
    """Return a call's arguments made right, where they are nearly: JSON, with lists and objects out of their strings.

    What was cut, and what is right already, stays as it is.
    """
    tool = tools.find(call.name) if call.kind == "function" and call.arguments.strip() else None
    given = object_of(call.arguments) if tool is not None else None
    if tool is None or given is None:
        return None
    made = tool.from_json(given)
    try:
        is_right = read_json(call.arguments) == made
    except BadJson:
        is_right = False
    return None if is_right else write_arguments(made)


def _with_text(late: list[ModelEvent], raw: str, index: int) -> list[ModelEvent]:
    """Put text back at the end of the last message, or into a message of its own."""
    place = next((n for n in range(len(late) - 1, -1, -1) if _is_message_done(late[n])), None)
    if place is None:
        item = MessageItem(role="assistant", content=(TextPart(text=raw),))
        begun = ItemAdded(index=index, item=MessageItem(role="assistant"))
        return [*late, begun, TextDelta(index=index, text=raw), ItemDone(index=index, item=item)]
    done = late[place]
    assert isinstance(done, ItemDone)
    assert isinstance(done.item, MessageItem)
    parts = list(done.item.content)
    last = parts[-1] if parts and isinstance(parts[-1], TextPart) else TextPart(text="")
    parts = [*(parts[:-1] if parts and parts[-1] is last else parts), _shown(last, last.text + raw)]
    told = TextDelta(index=done.index, text=raw, part=len(parts) - 1)
    ended = ItemDone(index=done.index, item=msgspec.structs.replace(done.item, content=tuple(parts)))
    return [*late[:place], told, ended, *late[place + 1 :]]


def _is_message_done(event: ModelEvent) -> bool:
    return isinstance(event, ItemDone) and isinstance(event.item, MessageItem)


def _shown(part: TextPart, text: str) -> TextPart:
    """Return a part with the text that is visible; what belongs to single tokens does not fit another text."""
    return part if part.text == text else msgspec.structs.replace(part, text=text, logprobs=None, annotations=None)


def _signature(name: str, arguments: str) -> tuple[str, bytes]:
    try:
        return name, canonical_json(read_json(arguments or "{}"))
    except BadJson:
        return name, arguments.encode("utf-8", "surrogatepass")


def _noted(code: str, action: NoteAction, message: str, found: Found) -> Noted:
    return Noted(note=Note(code=code, action=action, message=message, field=found.dialect))


class ScanningDecoder:
    """A decoder in whose events calls are looked for."""

    def __init__(self, decoder: Decoder, scanner: Scanner) -> None:
        self._decoder = decoder
        self._scanner = scanner

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these bytes complete."""
        return self._scanner.feed_all(self._decoder.feed(data))

    def finish(self) -> list[ModelEvent]:
        """Return what the end of the bytes makes of them."""
        return self._scanner.feed_all(self._decoder.finish())


def scanning(decoder: Decoder, plan: Plan, rules: RepairRules | None) -> Decoder:
    """Return a decoder that also looks for calls in text, where the plan has tools that may be called."""
    if rules is None or plan.tool_choice.mode == "none" or not _TOOLS.of(plan.tools).names:
        return decoder
    is_json = plan.options.output_schema is not None or "response_format" in plan.options.extra
    scanner = Scanner(plan, rules, is_json=is_json)
    return ScanningDecoder(decoder, scanner)
