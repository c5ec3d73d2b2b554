"""Shows what an upstream's answer holds that the client's protocol has no place for as text, or notes that it is lost.

Code that a provider ran becomes text, what it cites becomes annotations; a block that only the same protocol knows
stays in the journal, for its upstream, and is named in a note. Everything else passes as it is.
"""

import re
from typing import Any, cast

import msgspec

from treadle.core.events import ItemDone, ModelEvent, Noted, TextDelta
from treadle.core.items import AnyPart, Extra, FilePart, ImagePart, MessageItem, OpaqueItem, OpaquePart, TextPart
from treadle.core.json import write_json
from treadle.core.request import Note, NoteAction
from treadle.protocols.codec_interfaces import Decoder
from treadle.protocols.protocol_registry import MESSAGES, OPENAI_PROTOCOLS
from treadle.protocols.translation.hosted_call_translation import is_retold
from treadle.protocols.translation.loose_values import Fields, list_in, object_in, text_in, value_of

CITATIONS_MAX = 256
"""How many citations of one text are carried; a page of search results has ten."""

_WORD_CHARS_MAX = 80
_TICKS = re.compile("`+")
_ABOUT = ("groundingMetadata", "citationMetadata", "urlContextMetadata", "logprobsResult")
"""What Gemini says about an answer beside it; its ratings and averages are left out."""


class Bearer:
    """Carries the events of one model call to a client of that protocol; each thing that is lost is noted once."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._noted: set[tuple[str, str]] = set()

    def feed(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the event as the client can be shown it, with the notes about it."""
        if type(event) is TextDelta:
            extra = event.extra
            return [event] if extra is None or extra.protocol == self._client else self._delta(event, extra)
        item = event.item if type(event) is ItemDone else None
        if type(item) is OpaqueItem and item.protocol != self._client:
            return [*self._note_block(item), event]
        if type(event) is ItemDone and type(item) is MessageItem:
            message, notes = self._message(item)
            return [*notes, event if message is item else ItemDone(index=event.index, item=message)]
        return [event]

    def _delta(self, event: TextDelta, extra: Extra) -> list[ModelEvent]:
        """Show a part that came between the texts where it came."""
        raw = extra.fields.get("part")
        shown = None if raw is None else readable(raw)
        if shown is None:
            return [event]
        return [TextDelta(index=event.index, text=event.text + shown, part=event.part)]

    def _message(self, item: MessageItem) -> tuple[MessageItem, list[ModelEvent]]:
        notes: list[ModelEvent] = []
        content = tuple([self._part(part, notes) for part in item.content])
        if item.extra is not None and item.extra.protocol != self._client:
            content = self._annotated(content, item.extra, notes)
        if content == item.content:
            return item, notes
        return msgspec.structs.replace(item, content=content), notes

    def _part(self, part: AnyPart, notes: list[ModelEvent]) -> AnyPart:
        if type(part) is TextPart and part.extra is None and part.annotations is None:
            return part
        match part:
            case OpaquePart() if part.protocol != self._client:
                shown = readable(part.raw)
                if shown is None:
                    notes += self._note("part_hidden", "dropped", f"a part that only {part.protocol} can show")
                    return part
                notes += self._note("code_as_text", "emulated", "code that the provider ran is shown as text")
                return TextPart(text=shown)
            case ImagePart() | FilePart() if self._client == MESSAGES:
                notes += self._note(
                    "media_named", "emulated", "an answer has no place for images and files: named only"
                )
                return part
            case TextPart() if part.extra is not None and part.extra.protocol != self._client:
                return self._cited(part, part.extra, notes)
            case TextPart() if part.annotations is not None and self._client not in OPENAI_PROTOCOLS:
                notes += self._note("annotations_dropped", "dropped", "annotations of a text", "annotations")
                return part
            case _:
                return part

    def _cited(self, part: TextPart, extra: Extra, notes: list[ModelEvent]) -> TextPart:
        """Return a text with what Anthropic's models cite as annotations of it."""
        cited = [object_in(each) for each in list_in(value_of(extra.fields.get("citations")))[:CITATIONS_MAX]]
        if not cited:
            return part
        found = [_annotation(each, 0, len(part.text)) for each in cited] if self._client in OPENAI_PROTOCOLS else []
        return self._with(part, [each for each in found if each is not None], len(cited), notes)

    def _annotated(self, content: tuple[AnyPart, ...], extra: Extra, notes: list[ModelEvent]) -> tuple[AnyPart, ...]:
        """Return the parts with what Gemini grounds them on as annotations of the text that it is about."""
        for name in (name for name in _ABOUT[2:] if name in extra.fields):
            notes += self._note("field_dropped", "dropped", f"{name} of an answer", name)
        about = {name: object_in(value_of(extra.fields[name])) for name in _ABOUT[:2] if name in extra.fields}
        place = next((place for place, part in enumerate(content) if isinstance(part, TextPart)), None)
        if not about or place is None:
            return content
        part = cast("TextPart", content[place])
        found = _grounds(part.text, about) if self._client in OPENAI_PROTOCOLS else []
        grounded = self._with(part, found, 1, notes)
        return (*content[:place], grounded, *content[place + 1 :])

    def _with(self, part: TextPart, found: list[Fields], count: int, notes: list[ModelEvent]) -> TextPart:
        if len(found) < count:
            notes += self._note("citations_dropped", "dropped", "citations that are no address", "citations")
        if not found:
            return part
        notes += self._note("citations_annotated", "emulated", "citations became annotations")
        return msgspec.structs.replace(part, annotations=msgspec.Raw(write_json(found)))

    def _note_block(self, item: OpaqueItem) -> list[ModelEvent]:
        if is_retold(item, self._client):
            return []
        block = object_in(value_of(item.raw))
        kind = _word(block.get("type")) or "block"
        name = _word(block.get("name"))
        what = f"{kind} {name}" if name else kind
        return self._note("hosted_block", "dropped", f"{what}: only clients of {item.protocol} are shown it", kind)

    def _note(self, code: str, action: NoteAction, message: str, field: str | None = None) -> list[ModelEvent]:
        if (code, message) in self._noted:
            return []
        self._noted.add((code, message))
        return [Noted(note=Note(code=code, action=action, message=message, field=field))]


class BearingDecoder:
    """A decoder whose events are carried to a client of another protocol as they come."""

    def __init__(self, decoder: Decoder, bearer: Bearer) -> None:
        self._decoder = decoder
        self._bearer = bearer

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these bytes complete."""
        events = self._decoder.feed(data)
        for event in events:
            if type(event) is not TextDelta or event.extra is not None:
                return self._all(events)
        return events

    def finish(self) -> list[ModelEvent]:
        """Return what the end of the bytes makes of them."""
        return self._all(self._decoder.finish())

    def _all(self, events: list[ModelEvent]) -> list[ModelEvent]:
        out: list[ModelEvent] = []
        for event in events:
            if type(event) is TextDelta and event.extra is None:
                out.append(event)
            else:
                out += self._bearer.feed(event)
        return out


def readable(raw: msgspec.Raw) -> str | None:
    """Return code that Gemini ran, or what came of it, as text; None for any other part."""
    part = object_in(value_of(raw))
    code, result = object_in(part.get("executableCode")), object_in(part.get("codeExecutionResult"))
    if code:
        return _fenced(text_in(code.get("code")), _word(code.get("language")).lower())
    if result:
        outcome = _word(result.get("outcome")).removeprefix("OUTCOME_")
        output = text_in(result.get("output"))
        return _fenced(output if outcome in ("", "OK") else f"[{outcome}]\n{output}", "")
    return None


def _fenced(text: str, language: str) -> str:
    """Return a text between fences that are longer than any inside it."""
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in _TICKS.findall(text)), default=0))
    return f"\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _annotation(cited: Fields, start: int, end: int) -> Fields | None:
    """Return a citation as the Responses API spells one; None where it names no address."""
    url = text_in(cited.get("url") or cited.get("uri") or cited.get("source"))
    if "://" not in url:
        return None
    title = text_in(cited.get("title"))
    return {"type": "url_citation", "url": url, "title": title, "start_index": start, "end_index": end}


def _grounds(text: str, about: dict[str, Fields]) -> list[Fields]:
    """Return what the grounding of a text refers to, at the places that it is about."""
    grounding, citing = about.get("groundingMetadata", {}), about.get("citationMetadata", {})
    chunks = [object_in(each) for each in list_in(grounding.get("groundingChunks"))]
    pages = [object_in(chunk.get("web") or chunk.get("retrievedContext") or chunk.get("maps")) for chunk in chunks]
    found: list[Fields | None] = []
    for support in map(object_in, list_in(grounding.get("groundingSupports"))[:CITATIONS_MAX]):
        start, end = _span(text, object_in(support.get("segment")))
        numbers = list_in(support.get("groundingChunkIndices"))
        known = [pages[number] for number in numbers if isinstance(number, int) and 0 <= number < len(pages)]
        found += [_annotation(page, start, end) for page in known[:CITATIONS_MAX]]
    if not found:
        found += [_annotation(page, 0, len(text)) for page in pages[:CITATIONS_MAX]]
    sources = list_in(citing.get("citations") or citing.get("citationSources"))[:CITATIONS_MAX]
    found += [_annotation(source, *_span(text, source)) for source in map(object_in, sources)]
    return [each for each in found if each is not None][:CITATIONS_MAX]


def _span(text: str, segment: Fields) -> tuple[int, int]:
    """Return where a segment stands, in characters: Gemini counts bytes."""
    segment_text = text_in(segment.get("text"))
    place = text.find(segment_text) if segment_text else -1
    if place >= 0:
        return place, place + len(segment_text)
    raw = text.encode("utf-8", "replace")
    start, end = (_number(segment.get(name), default) for name, default in (("startIndex", 0), ("endIndex", len(raw))))
    return len(raw[:start].decode("utf-8", "ignore")), len(raw[:end].decode("utf-8", "ignore"))


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _word(value: Any) -> str:
    return text_in(value)[:_WORD_CHARS_MAX]
