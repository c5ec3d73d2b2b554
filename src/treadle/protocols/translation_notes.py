"""Collects notes on what a translation dropped, coerced or emulated: each is made once and counted.

Every writer notes the same options as lost: those that the client's reader did not understand and the writer did not
write.
"""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Generic, TypeVar

import msgspec

from treadle.core.items import AnyItem, AnyPart, Extra, MessageItem, OpaquePart, ResultItem
from treadle.core.request import Note, NoteAction, Options
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.field_reader import LIST, OBJECT, TEXT, starts_with
from treadle.protocols.protocol_registry import OPENAI_PROTOCOLS, PROTOCOLS, RESPONSES, OptionWords

HOSTED = "tools"
"""The extra field in which tools travel that only an upstream of the same protocol can run."""

HISTORY = "history"
"""The field of notes on calls and results of a history that do not belong together as they came."""

METADATA = "metadata"
"""The extra field of what OpenAI's clients attach to an answer; Treadle stores it with the run."""

CHOICE = "tool_choice"
"""The extra field of a choice that names such a tool."""

LOGPROBS = "include.message.output_text.logprobs"
"""The path of the option by which the Responses API is asked for logprobs."""

OPENAI_ALIKE = frozenset(
    {
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "service_tier",
        "moderation",
        "top_logprobs",
    }
)
"""Options that Chat Completions and Responses spell alike and mean the same by."""

_NO_WORDS = OptionWords()
V = TypeVar("V")
RECENT_BYTES_MAX = 2_097_152
"""How much is remembered of what clients send again and again; one value may have an eighth of it."""

NOTES_MAX = 256
"""How many notes one request can have; further ones are only counted."""


class Notes(msgspec.Struct):
    """One note for each code and field, however often the same thing happens; beyond a bound they are only counted.

    So many were `added`; those `made` are found by their code and field.
    """

    added: int = 0
    made: dict[tuple[str, str | None], Note] = {}

    def add(self, code: str, action: NoteAction, message: str, field: str | None = None, count: int = 1) -> None:
        """Add a note, or count it."""
        self.added += 1
        if len(self.made) >= NOTES_MAX and (code, field) not in self.made:
            code, message, field = f"more_{action}", f"more was {action} than is told here", None
        seen = self.made.get((code, field))
        if seen is not None:
            self.made[code, field] = msgspec.structs.replace(seen, count=seen.count + count)
        else:
            self.made[code, field] = Note(code=code, action=action, message=message, field=field, count=count)

    def repeat(self, notes: Iterable[Note]) -> None:
        """Add notes that were made before."""
        for note in notes:
            self.add(note.code, note.action, note.message, note.field, note.count)

    def all(self) -> tuple[Note, ...]:
        """Return the notes in the order of their first appearance."""
        return tuple(self.made.values())


class Recent(Generic[V]):
    """Caches what was read from the last JSON values by their bytes, because the same tools come with every request.

    The cached objects are shared, so what is derived from them can be cached by identity. Values that cause notes and
    very long ones are read anew each time.
    """

    __slots__ = ("_bytes", "_known", "_read")

    def __init__(self, read: Callable[[msgspec.Raw, Notes], V]) -> None:
        self._read = read
        self._known: dict[bytes, V] = {}
        self._bytes = 0

    def of(self, raw: msgspec.Raw, notes: Notes) -> V:
        """Return what is read of a value; it must not be changed.

        Raises: ProtocolError.
        """
        data = bytes(raw)
        found = self._known.get(data)
        if found is not None:
            return found
        before = notes.added
        # Of the copy, so that what is remembered does not hold the whole body it came in.
        value = self._read(msgspec.Raw(data), notes)
        if notes.added == before and len(data) <= RECENT_BYTES_MAX // 8:
            self._bytes += len(data)
            if self._bytes > RECENT_BYTES_MAX:
                self._known.clear()
                self._bytes = len(data)
            self._known[data] = value
        return value


def note_foreign(items: Iterable[AnyItem], tools: Iterable[ToolSpec], protocol: str, notes: Notes) -> None:
    """Note the fields kept for another protocol than this one: they cannot be written."""
    for item in items:
        if item.extra is not None:
            _note_extra(item.extra, protocol, notes)
        parts: tuple[AnyPart, ...] = ()
        if type(item) is MessageItem:
            parts = item.content
            if item.phase is not None and protocol != RESPONSES:
                notes.add("phase_dropped", "dropped", "phase: only responses knows it", "phase")
        elif type(item) is ResultItem:
            parts = item.output
        for part in parts:
            if part.extra is not None:
                _note_extra(part.extra, protocol, notes)
    for tool in tools:
        if tool.extra is not None:
            _note_extra(tool.extra, protocol, notes)


def _note_extra(extra: Extra, protocol: str, notes: Notes) -> None:
    if extra.protocol != protocol:
        for name in extra.fields:
            notes.add("field_dropped", "dropped", f"{name}: only {extra.protocol} knows it", name)


def unread(options: Options) -> dict[str, msgspec.Raw]:
    """Return the options, by their paths, that only a writer who knows their protocol can still carry.

    Not among them: what typed options hold already, defaults, and tools that only an upstream can run.
    """
    row = PROTOCOLS.get(options.extra_protocol)
    words = _NO_WORDS if row is None else row.options
    found: dict[str, msgspec.Raw] = {}
    for name, raw in options.extra.items():
        if name != HOSTED:
            _collect(name, raw, words.understood, found)
    return {path: raw for path, raw in found.items() if bytes(raw) != words.defaults.get(path)}


def note_unread(options: Options, carried: Collection[str], notes: Notes) -> None:
    """Note each unread option that was not carried, and the tools that only an upstream of their protocol can run."""
    for name in unread(options):
        if name in carried:
            continue
        if name == METADATA and options.extra_protocol in OPENAI_PROTOCOLS:
            notes.add("metadata_kept", "kept", "metadata stays with the run; the upstream is told none", name)
        else:
            notes.add("option_dropped", "dropped", f"{name}: only {options.extra_protocol} knows it", name)
    if HOSTED in options.extra and HOSTED not in carried:
        note_hosted(LIST.decode(options.extra[HOSTED]), notes)


def note_hosted(tools: Collection[msgspec.Raw], notes: Notes) -> None:
    """Note tools that this upstream cannot run."""
    if tools:
        kinds = ", ".join(sorted({kind_of(tool) for tool in tools}))
        notes.add("hosted_tool", "dropped", f"the upstream cannot run tools of the type {kinds}", HOSTED, len(tools))


def is_alike(part: OpaquePart) -> bool:
    """Return whether Chat Completions and Responses spell a part alike, so that either takes the other's."""
    return part.protocol in OPENAI_PROTOCOLS and kind_of(part.raw) == "input_audio"


def kind_of(tool: msgspec.Raw) -> str:
    """Return what a tool that an upstream runs is called: its type, or, where it has none, its only field."""
    fields = OBJECT.decode(tool) if starts_with(tool, "{") else {}
    kind = fields.get("type")
    if kind is not None and starts_with(kind, '"'):
        return TEXT.decode(kind)
    return next(iter(fields), "unknown")


@cache
def _opened(understood: frozenset[str]) -> frozenset[str]:
    """Return the fields of which the table names inner fields."""
    steps = (path.split(".") for path in understood)
    return frozenset(".".join(names[:count]) for names in steps for count in range(1, len(names)))


def _collect(name: str, raw: msgspec.Raw, understood: frozenset[str], found: dict[str, msgspec.Raw]) -> None:
    """Add a field that is not understood; of one that the table opens, its inner fields that are not."""
    if name in understood:
        return
    is_open = name in _opened(understood)
    if is_open and starts_with(raw, "{"):
        for inner, value in OBJECT.decode(raw).items():
            _collect(f"{name}.{inner}", value, understood, found)
    elif is_open and starts_with(raw, "["):
        for entry in LIST.decode(raw):
            if starts_with(entry, '"'):
                _collect(f"{name}.{TEXT.decode(entry)}", entry, understood, found)
            else:
                _collect(name, entry, understood, found)
    elif not starts_with(raw, "n"):
        found[name] = raw
