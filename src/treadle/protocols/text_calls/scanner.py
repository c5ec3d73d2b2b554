"""The scanner: text in pieces goes in, visible text and calls come out, in order.

Ordinary text leaves at once; held back is only what may still become a marker, and a call until it is whole. At a
marker the recognisers of the dialects that begin so are tried in turn. Text that turns out to be no call is scanned
again behind its first character, within a budget that keeps the whole linear; what is over the budget, or longer than
the cap, leaves unread. Reasoning that is closed never calls.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence

import msgspec

from treadle.protocols.text_calls.call_building import TextCall
from treadle.protocols.text_calls.dialect_grammar import (
    AnyGrammar,
    Braces,
    Dialect,
    Elements,
    Framed,
    JsonBody,
    NamedJson,
    Pairs,
    Pythonic,
    Tagged,
    Whole,
)
from treadle.protocols.text_calls.dialect_table import FRAME_ENDS, LONE_ENDS, REASONING, RESPONSE
from treadle.protocols.text_calls.json_recognizers import FENCE, Calls, braces, json_body, named_json, pythonic, whole
from treadle.protocols.text_calls.markdown_regions import HEAD_CHARS, MarkdownLines, inline_end, unpaired
from treadle.protocols.text_calls.resumable_reader import ResumableReader, Wait
from treadle.protocols.text_calls.schema_values import TextTools
from treadle.protocols.text_calls.tag_recognizers import elements, frame, pairs, tagged

HELD_CHARS_MAX = 4_194_304
"""What is held of one call at most; longer text leaves as it came."""

REREADS = 8
"""How often, on average, a character may be read again because a call began before it and was none."""

_REREAD_CHARS = 65_536
_ATTEMPT_CHARS = 16
_SLICE_CHARS = 2_048
_SHOWN_CHARS = 80
_NEWLINE = re.compile(r"\n|`+")
_BLANK = re.compile(r"\s*")


class FoundCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Markup that left the text: the calls in it, the dialect, and what was written."""

    dialect: str
    raw: str
    calls: tuple[TextCall, ...] = ()
    opens_frame: bool = False


Piece = str | FoundCalls


class _Code(msgspec.Struct, frozen=True):
    """So many characters are inline code."""

    chars: int


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """What may begin a call in a set of dialects, compiled once.

    `stray` finds what may be or become a marker, or changes what the rest of a line means. `opening` matches texts of
    which more has to be known because they begin a message.
    """

    words: dict[str, tuple[Dialect, ...]]
    line_words: dict[str, tuple[Dialect, ...]]
    wholes: tuple[Dialect, ...]
    pattern: re.Pattern[str]
    line_pattern: re.Pattern[str]
    prefixes: frozenset[str]
    line_prefixes: frozenset[str]
    gate: frozenset[str]
    stray: re.Pattern[str]
    opening: re.Pattern[str]
    chars_max: int


_COMPILED_MAX = 64
_compiled: dict[tuple[int, tuple[str, ...]], tuple[tuple[Dialect, ...], Markers]] = {}
"""The markers of dialects, found again by which tuple of them it is: hashing their contents would cost more."""


def markers_of(dialects: tuple[Dialect, ...], names: tuple[str, ...]) -> Markers:
    """Return the markers of these dialects; `names` are tools that may be called by an element of their name."""
    known = _compiled.get((id(dialects), names))
    if known is not None and known[0] is dialects:
        return known[1]
    if len(_compiled) >= _COMPILED_MAX:
        _compiled.clear()
    markers = _compile(dialects, names)
    _compiled[id(dialects), names] = (dialects, markers)
    return markers


def _compile(dialects: tuple[Dialect, ...], names: tuple[str, ...]) -> Markers:
    words: dict[str, list[Dialect]] = {}
    line_words: dict[str, list[Dialect]] = {}
    for dialect in dialects:
        marks: Iterable[str] = dialect.grammar.markers
        if isinstance(dialect.grammar, Elements) and not dialect.grammar.sentinel:
            marks = (f"<{name}>" for name in names)
        for mark in marks:
            table = line_words if dialect.at_line and not mark.startswith("<") else words
            table.setdefault(mark, []).append(dialect)
    plain = {*words, *REASONING, *REASONING.values(), *RESPONSE, *FRAME_ENDS}
    prefixes = frozenset(word[:size] for word in plain for size in range(1, len(word)))
    ordered = sorted(plain, key=len, reverse=True)
    return Markers(
        words={word: tuple(each) for word, each in words.items()},
        line_words={word: tuple(each) for word, each in line_words.items()},
        wholes=tuple(each for each in dialects if isinstance(each.grammar, Whole)),
        pattern=re.compile("|".join(["\n", "`+", *map(re.escape, ordered)])),
        line_pattern=re.compile("|".join(map(re.escape, sorted(line_words, key=len, reverse=True))) or r"(?!)"),
        prefixes=prefixes,
        line_prefixes=frozenset(word[:size] for word in line_words for size in range(1, len(word))),
        gate=frozenset({"\n", "`", *(word[0] for word in plain)}),
        stray=re.compile("|".join(sorted({"\n", "`", *map(_begun, plain)}))),
        opening=re.compile("|".join([f"[{re.escape(''.join(sorted(HEAD_CHARS)))}\\s{{\\[]", *map(_begun, line_words)])),
        chars_max=max(map(len, plain)),
    )


def _begun(word: str) -> str:
    """Return what finds a word or a beginning of it at the end of a text: a first character that is rare is enough."""
    if not word[0].isalnum():
        return re.escape(word[0])
    rest = ""
    for char in reversed(word[1:]):
        rest = rf"(?:\Z|{re.escape(char)}{rest})"
    return re.escape(word[0]) + rest


def recognise(reader: ResumableReader, grammar: AnyGrammar, tools: TextTools) -> Wait[Calls]:
    """Read the calls of one grammar; none where the text is not of it."""
    match grammar:
        case JsonBody():
            return json_body(reader, grammar, tools)
        case NamedJson():
            return named_json(reader, grammar, tools)
        case Tagged():
            return tagged(reader, grammar, tools)
        case Pairs():
            return pairs(reader, grammar, tools)
        case Elements():
            return elements(reader, grammar, tools)
        case Pythonic():
            return pythonic(reader, grammar, tools)
        case Braces():
            return braces(reader, grammar, tools)
        case Whole():
            return whole(reader, grammar, tools)
        case Framed():
            raise AssertionError("frames are read by themselves")


def _attempt(
    reader: ResumableReader, dialects: Sequence[Dialect], tools: TextTools, runs: Sequence[int]
) -> Generator[None, None, FoundCalls | _Code | None]:
    """Try dialects in turn at a marker."""
    if runs:
        chars = yield from inline_end(reader, runs)
        reader.back(0)
        if chars:
            return _Code(chars)
    for dialect in dialects:
        if isinstance(dialect.grammar, Framed):
            framed = yield from frame(reader, tools)
            if framed is not None:
                raw = reader.since(0)
                return FoundCalls(dialect=dialect.id, raw=raw, calls=framed.calls, opens_frame=framed.is_visible)
        else:
            calls = yield from recognise(reader, dialect.grammar, tools)
            if calls:
                raw = reader.since(0)
                return FoundCalls(dialect=_named(dialect, raw), raw=raw, calls=tuple(calls))
        reader.back(0)
    return None


def _named(dialect: Dialect, raw: str) -> str:
    """Return the dialect's id; a whole message of the API's own shape has one of its own."""
    if dialect.id in ("openai_json_text", "bare_json"):
        return "openai_json_text" if '"tool_calls"' in raw[:64] else "bare_json"
    return dialect.id


class TextScanner:
    """Scans one text for calls of registered tools.

    `natives` are the dialects in which a call may also stand in reasoning that never ends. `refused` is told, in words
    for a person, why markup stays text. `is_begun` says that plain text of the message has passed already. It `is_idle`
    while nothing of the text waits for more.
    """

    __slots__ = (
        "_backlog",
        "_call_count",
        "_held",
        "_is_barred",
        "_is_blank",
        "_is_ended",
        "_is_first",
        "_is_frame_open",
        "_lines",
        "_markers",
        "_natives",
        "_out",
        "_pending",
        "_reader",
        "_refused",
        "_spare",
        "_stray",
        "_tail",
        "_task",
        "_think",
        "_tools",
        "chars_max",
        "is_idle",
        "work",
    )

    def __init__(
        self,
        tools: TextTools,
        dialects: tuple[Dialect, ...],
        *,
        natives: frozenset[str] | None = None,
        chars_max: int = HELD_CHARS_MAX,
        refused: Callable[[str], None] | None = None,
        is_begun: bool = False,
    ) -> None:
        self._markers = markers_of(dialects, tools.names)
        self._tools = tools
        self._natives = frozenset(each.id for each in dialects) if natives is None else natives
        self.chars_max = chars_max
        self.work = 0
        self._refused = refused
        self._lines = MarkdownLines()
        self._reader: ResumableReader | None = None
        self._task: Generator[None, None, FoundCalls | _Code | None] | None = None
        self._tail = ""
        self._backlog: list[str] = []
        self._is_barred = False
        self._spare = _REREAD_CHARS
        self._out: list[Piece] = []
        self._held: list[Piece] | None = None
        self._pending: list[str] = []
        self._think: str | None = None
        self._is_blank = self._is_first = not is_begun
        self._is_ended = False
        self.is_idle = is_begun
        self._stray = self._markers.stray
        self._is_frame_open = False
        self._call_count = 0
        if is_begun:
            self._lines.feed("x")

    @property
    def held_chars(self) -> int:
        """Return how many characters are held back."""
        held = sum(len(each if isinstance(each, str) else each.raw) for each in self._held or ())
        return len(self._tail) + (self._reader.size if self._reader else 0) + held

    def passes(self, text: str) -> bool:
        """Return whether the text would leave at once, unchanged, and leave no trace: then it need not be fed."""
        return self.is_idle and self._stray.search(text) is None

    def feed(self, text: str) -> list[Piece]:
        """Take more of the text; return what leaves because of it."""
        if self.passes(text):
            return [text]
        self._spare += REREADS * len(text)
        self._backlog.append(text)
        self._go()
        self.is_idle = (
            self._task is None
            and not (self._tail or self._is_blank or self._is_barred)
            and self._lines.is_idle
            and self._held is None
        )
        return self._take()

    def finish(self) -> list[Piece]:
        """Take the end of the text; return all that is left."""
        self._is_ended = True
        while self._task is not None or self._tail or self._backlog:
            self._go()
            self._advance("")
        if self._held is not None:
            self._release_held(keeps_calls=self._call_count == 0)
        if not self._call_count:
            self._out += self._pending
        self._pending.clear()
        return self._take()

    def _take(self) -> list[Piece]:
        out, self._out = self._out, []
        if len(out) < 2:
            return out
        joined: list[Piece] = []
        texts: list[str] = []
        for piece in out:
            if isinstance(piece, str):
                texts.append(piece)
                continue
            if texts:
                joined.append("".join(texts))
                texts = []
            joined.append(piece)
        if texts:
            joined.append("".join(texts))
        return [each for each in joined if each]

    def _go(self) -> None:
        """Scan what waits, in slices: what a slice is copied for costs the same however long the text is."""
        while self._backlog:
            text = self._backlog.pop()
            waiting = len(self._backlog)
            for at in range(0, len(text), _SLICE_CHARS):
                self._advance(text[at : at + _SLICE_CHARS])
                if len(self._backlog) > waiting:
                    # What an attempt gave back comes first, then the rest of this text, then what waited before.
                    self._backlog.insert(-1, text[at + _SLICE_CHARS :])
                    break

    def _advance(self, text: str) -> None:
        """Take a slice, or the end where nothing else waits; what is to be scanned anew is put into the backlog."""
        is_end = self._is_ended and not text
        if self._task is not None:
            assert self._reader is not None
            self._reader.add(text)
            self._reader.is_ended = is_end
        else:
            text, self._tail = self._tail + text, ""
            if not self._scan(text, is_end=is_end):
                return
        self._step()

    def _step(self) -> None:
        """Continue the attempt."""
        reader, task = self._reader, self._task
        assert reader is not None
        assert task is not None
        try:
            next(task)
        except StopIteration as over:
            self._task = self._reader = None
            self._conclude(reader, over.value)
            return
        if reader.size > self.chars_max:
            task.close()
            self._task = self._reader = None
            reader.back(0)
            self.work += reader.size
            self._refuse(reader.text, f"is longer than the {self.chars_max} characters that are held")
            self._blindly(reader.text)

    def _conclude(self, reader: ResumableReader, result: FoundCalls | _Code | None) -> None:
        """Take the result of an attempt."""
        self.work += reader.peak
        if isinstance(result, FoundCalls):
            self._keep(result)
            self._lines.settle()
            if result.raw.endswith("\n"):
                self._lines.newline()
            else:
                self._lines.feed("x")
            self._again(reader.rest())
            return
        read = reader.peak
        reader.back(0)
        text = reader.text
        self._spare -= read + _ATTEMPT_CHARS
        if self._spare < 0:
            self._spare = 0
            self._blindly(text[:read] or text[:1])
            self._again(text[read or 1 :])
        elif result is None:
            self._refuse(text, self._why_not(text[: read + 1]))
            self._is_barred = True
            self._again(text)
        else:
            self._refuse(text, "stands in inline code")
            self._lines.settle()
            self._lines.feed(text[: result.chars].replace("`", "'"))
            self._emit(text[: result.chars])
            self._again(text[result.chars :])

    def _again(self, text: str) -> None:
        if text:
            self._backlog.append(text)

    def _blindly(self, text: str) -> None:
        """Pass text on without searching it for markers."""
        at = 0
        for found in _NEWLINE.finditer(text):
            self._lines.feed(text[at : found.start()])
            if found[0] == "\n":
                self._lines.newline()
            else:
                self._lines.ticks(len(found[0]), may_grow=found.end() == len(text))
            at = found.end()
        self._lines.feed(text[at:])
        self._emit(text)

    def _scan(self, text: str, *, is_end: bool) -> bool:
        """Go through ordinary text; return whether an attempt has begun."""
        at = start = 0
        barred, self._is_barred = 0 if self._is_barred else -1, False
        self.work += len(text)
        while True:
            # A line that is indented a little begins behind its blanks, however the text was cut.
            while at < len(text) and text[at] == " " and self._lines.is_fresh:
                self._lines.feed(" ")
                at += 1
            if at != barred and at < len(text):
                verdict = self._at_start(text, start, at, is_end=is_end)
                if verdict is None:
                    self._leave(text, start, at)
                    return False
                if verdict:
                    self._leave(text, start, at)
                    self._begin(text[at:], verdict, is_end=is_end)
                    return True
            found = self._search(text, at)
            if found is None:
                stop = len(text) if is_end else self._hold(text, at)
                self._is_barred = stop == barred
                self._lines.feed(text[at:stop])
                self._leave(text, start, stop)
                return False
            self._lines.feed(text[at : found.start()])
            at = found.start()
            token = found[0]
            if token == "\n":
                self._lines.newline()
                at += 1
            elif token[0] == "`":
                at = found.end()
                self._lines.ticks(len(token), may_grow=at == len(text) and not is_end)
            elif at == barred or (self._lines.is_code and token != self._think):
                if at != barred and token in self._markers.words:
                    self._refuse(text[at:], "stands in a code block or a quotation")
                self._lines.feed(token[0])
                at += 1
            elif token in self._markers.words and token not in REASONING:
                self._leave(text, start, at)
                self._begin(text[at:], self._markers.words[token], is_end=is_end)
                return True
            else:
                self._leave(text, start, at)
                start = at = self._special(token, at)

    def _leave(self, text: str, start: int, stop: int) -> None:
        """Pass text on up to a place, and hold the rest."""
        self._emit(text[start:stop])
        self._tail = text[stop:]

    def _search(self, text: str, at: int) -> "re.Match[str] | None":
        if self._lines.is_code and self._think is None and self._refused is None:
            return _NEWLINE.search(text, at)
        return self._markers.pattern.search(text, at)

    def _hold(self, text: str, at: int) -> int:
        """Return from where on the end of a text may still become a marker."""
        if self._lines.is_code and self._think is None:
            return len(text)
        prefixes, gate = self._markers.prefixes, self._markers.gate
        if self._stray.search(text, at) is None:
            return len(text)
        for place in range(max(at, len(text) - self._markers.chars_max + 1), len(text)):
            if text[place] in gate and text[place:] in prefixes:
                return place
        return len(text)

    def _at_start(self, text: str, start: int, at: int, *, is_end: bool) -> "tuple[Dialect, ...] | None":
        """Return the dialects that may begin at the start of this line or message; None where that is not known yet."""
        if not self._lines.is_fresh or (self._think is not None and not self._markers.line_words):
            return ()
        rest = text[at : at + self._markers.chars_max]
        if not is_end and rest in self._markers.line_prefixes and at + len(rest) == len(text):
            return None
        found = self._markers.line_pattern.match(rest)
        dialects = self._markers.line_words[found[0]] if found else ()
        # What stands before the place and has not left yet is of the message, too.
        if not self._is_first or self._think is not None or not self._markers.wholes or text[start:at].strip():
            return dialects
        if rest[0] not in "{[`" or (rest[0] == "`" and not rest.startswith(FENCE[: len(rest)])):
            return dialects
        if not is_end and rest in self._markers.prefixes and at + len(rest) == len(text):
            return None
        marked = max((word for word in self._markers.words if rest.startswith(word)), key=len, default="")
        return (*dialects, *self._markers.words.get(marked, ()), *self._markers.wholes)

    def _begin(self, text: str, dialects: tuple[Dialect, ...], *, is_end: bool) -> None:
        runs = tuple(self._lines.runs) if unpaired(self._lines.runs) else ()
        self._tail = ""
        self._reader = ResumableReader(text, is_ended=is_end)
        self._task = _attempt(self._reader, dialects, self._tools, runs)

    def _special(self, token: str, at: int) -> int:
        """Pass a word that is no marker of a call; return the place behind it."""
        end = at + len(token)
        if token in REASONING and self._think is None:
            self._think = REASONING[token]
        elif token == self._think:
            is_first, self._think = self._is_first, None
            self._release_held(keeps_calls=False)
            self._emit(token)
            self._lines.reset()
            self._is_first = is_first
            return end
        elif (
            (token in FRAME_ENDS and self._is_frame_open) or token in RESPONSE or LONE_ENDS.get(token) in self._natives
        ):
            self._is_frame_open = False
            return end
        elif token not in REASONING:
            self._lines.feed(token[0])
            self._emit(token[0])
            return at + 1
        self._lines.feed(token)
        self._emit(token)
        return end

    def _keep(self, found: FoundCalls) -> None:
        """Take what an attempt found."""
        self._is_frame_open = found.opens_frame
        if self._think is not None:
            self._held = [] if self._held is None else self._held
            self._held.append(found)
            if self.held_chars > self.chars_max:
                self._release_held(keeps_calls=False)
            return
        self._call_count += len(found.calls)
        if found.calls and self._is_blank:
            self._pending.clear()
        self._is_blank = self._is_blank or bool(found.calls)
        self._out.append(found)

    def _release_held(self, *, keeps_calls: bool) -> None:
        """Let go what was held because it stood in open reasoning: as calls, or as the text it was."""
        held, self._held = self._held or [], None
        for piece in held:
            if isinstance(piece, str):
                self._emit(piece)
            elif keeps_calls and piece.dialect in self._natives:
                self._call_count += len(piece.calls)
                self._out.append(piece)
            else:
                self._refuse(piece.raw, "stands in reasoning")
                self._emit(piece.raw)

    def _refuse(self, text: str, why: str) -> None:
        """Report why markup stays text, if a callback was given."""
        if self._refused is not None:
            self._refused(f"{text[:_SHOWN_CHARS]!r} {why}")

    def _why_not(self, text: str) -> str:
        if self._refused is None or any(name in text for name in self._tools.names):
            return "is no whole call: cut, or not of a known grammar"
        return "names no registered tool"

    def _emit(self, text: str) -> None:
        """Let text leave; white space at the start and behind a call waits for more."""
        if not text:
            return
        if self._held is not None:
            self._held.append(text)
            return
        if not self._is_blank:
            self._out.append(text)
            self._is_first = self._is_first and self._think is not None
            return
        self._pending.append(text)
        blank = _BLANK.match(text)
        if blank is None or blank.end() < len(text):
            self._out += self._pending
            self._pending.clear()
            self._is_blank = False
            self._is_first = self._is_first and self._think is not None
