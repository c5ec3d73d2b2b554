"""Parses Markdown inside a line: emphasis, code, links, escapes. Pure, and linear in the text.

The rules of emphasis are those of CommonMark (runs of delimiters that stand at the left or the right of a word); what
is no mark stays as it was written.
"""

import html
import re
from collections import Counter
from html.entities import html5

from treadle.terminal.rendering.column_width import Span
from treadle.terminal.rendering.sanitize import one_line

_SPECIAL = re.compile(r"[\\`*_~!\[\]<&\n]")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_AUTOLINK = re.compile(
    r"<([A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]{0,2000}|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){0,8})>"
)
_TARGET = re.compile(
    r"""\(\s{0,3}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\.|\([^\s()]{0,500}\)){0,2000}))"""
    r"""(?:\s{1,3}(?:"[^"]{0,500}"|'[^']{0,500}'|\([^()]{0,500}\)))?\s{0,3}\)"""
)
_TICKS = re.compile(r"`+")
BRACKETS_MAX = 64
"""Brackets that are open at once; one more is only text."""
_HARD = re.compile(r"(?: {2,}|\\)$")
STYLES = {"bold": "1", "italic": "3", "strike": "9", "link": "94", "url": "4;34"}


class _Piece:
    """Text, or a run of delimiters; `closes` end before what is left of it, `opens` begin behind that."""

    __slots__ = ("can_close", "can_open", "closes", "count", "mark", "opens", "size", "style", "text")

    def __init__(self, text: str, mark: str = "", style: str = "") -> None:
        self.text = text
        self.mark = mark
        self.style = style
        self.count = self.size = len(text) if mark else 0
        self.can_open = self.can_close = False
        self.closes: list[str] = []
        self.opens: list[str] = []


class _Reader:
    def __init__(self, text: str, code_style: str) -> None:
        self._text = text
        self._code_style = code_style
        self._place = 0
        self._pieces: list[_Piece] = []
        self._runs: list[_Piece] = []
        self._brackets: list[tuple[int, int, bool]] = []
        """Open brackets: the place of their piece, how many runs stood before them, and whether they are pictures."""
        self._last_ticks: dict[int, int] = {}
        for found in _TICKS.finditer(text):
            self._last_ticks[len(found[0])] = found.start()

    def read(self) -> list[Span]:
        """Read all of it."""
        while self._place < len(self._text):
            found = _SPECIAL.search(self._text, self._place)
            end = found.start() if found else len(self._text)
            if end > self._place:
                self._add(self._text[self._place : end])
                self._place = end
            if found:
                self._take(found[0])
        self._pair(0)
        return self._spans()

    def _add(self, text: str, style: str = "") -> None:
        self._pieces.append(_Piece(text, style=style))

    def _take(self, mark: str) -> None:
        """Read what begins with a special character."""
        match mark:
            case "`":
                self._take_code()
            case "*" | "_" | "~":
                self._take_run(mark)
            case "[" | "!":
                self._take_bracket(mark)
            case "]":
                self._take_end()
            case "\n":
                self._take_break()
            case _:
                self._take_other(mark)

    def _take_other(self, mark: str) -> None:
        pattern = {"\\": _ESCAPED, "&": _ENTITY, "<": _AUTOLINK}[mark]
        found = pattern.match(self._text, self._place)
        if found is None or (mark == "&" and found[0][1] != "#" and found[0][1:] not in html5):
            self._add(mark)
            self._place += 1
            return
        self._place = found.end()
        if mark == "&":
            # What an entity stands for can be what was cleaned away before.
            self._add(one_line(html.unescape(found[0])))
        else:
            self._add(found[1], STYLES["url"] if mark == "<" else "")

    def _take_code(self) -> None:
        ticks = _TICKS.match(self._text, self._place)
        assert ticks is not None
        size, end = len(ticks[0]), ticks.end()
        place = end
        while self._last_ticks.get(size, -1) >= place and (found := _TICKS.search(self._text, place)):
            if len(found[0]) == size:
                code = self._text[end : found.start()].replace("\n", " ")
                if len(code) > 2 and code[0] == code[-1] == " " and code.strip():
                    code = code[1:-1]
                self._add(code, self._code_style)
                self._place = found.end()
                return
            place = found.end()
        self._add(ticks[0])
        self._place = end

    def _take_run(self, mark: str) -> None:
        end = self._place
        while end < len(self._text) and self._text[end] == mark:
            end += 1
        before = self._text[self._place - 1] if self._place else " "
        after = self._text[end] if end < len(self._text) else " "
        run = _Piece(self._text[self._place : end], mark)
        is_left, is_right = _flanks(before, after)
        run.can_open = is_left and (mark != "_" or not is_right or _is_punctuation(before))
        run.can_close = is_right and (mark != "_" or not is_left or _is_punctuation(after))
        self._pieces.append(run)
        if (run.can_open or run.can_close) and (mark != "~" or run.size == 2):
            self._runs.append(run)
        self._place = end

    def _take_bracket(self, mark: str) -> None:
        is_picture = mark == "!"
        if is_picture and not self._text.startswith("![", self._place):
            self._add("!")
            self._place += 1
            return
        if len(self._brackets) < BRACKETS_MAX:
            self._brackets.append((len(self._pieces), len(self._runs), is_picture))
        self._add("![" if is_picture else "[")
        self._place += 2 if is_picture else 1

    def _take_end(self) -> None:
        self._place += 1
        found = _TARGET.match(self._text, self._place) if self._brackets else None
        if not self._brackets or found is None:
            del self._brackets[-1:]
            self._add("]")
            return
        start, runs, is_picture = self._brackets.pop()
        self._pair(runs)
        opener, closer = self._pieces[start], _Piece("")
        opener.text, opener.opens, closer.closes = "", ["link"], ["link"]
        label = "".join(piece.text for piece in self._pieces[start:])
        self._pieces.append(closer)
        url = _ESCAPED.sub(r"\1", found[1] or found[2] or "")
        if url and url != label:
            self._add(" (" if label else "(")
            self._add(one_line(url), STYLES["url"])
            self._add(")")
        self._place = found.end()
        if not is_picture:
            # A link holds no other.
            self._brackets = [each for each in self._brackets if each[2]]

    def _take_break(self) -> None:
        self._place += 1
        last = self._pieces[-1] if self._pieces else None
        hard = _HARD.search(last.text) if last is not None and not last.mark and not last.style else None
        if last is not None and hard:
            last.text = last.text[: hard.start()]
        elif last is not None and not last.mark and not last.style:
            last.text = last.text.rstrip(" ")
        self._add("\n" if hard else " ")

    def _pair(self, bottom: int) -> None:
        """Pair the runs from a place on, innermost first; what finds no partner stays text."""
        open_runs: list[_Piece] = []
        without: dict[tuple[str, int, bool], int] = {}
        for run in self._runs[bottom:]:
            while run.can_close and run.count and self._close(run, open_runs, without):
                pass
            if run.can_open and run.count:
                open_runs.append(run)
        del self._runs[bottom:]

    def _close(self, run: _Piece, open_runs: list[_Piece], without: dict[tuple[str, int, bool], int]) -> bool:
        key = (run.mark, run.size % 3, run.can_open)
        least = without.get(key, 0)
        for place in range(len(open_runs) - 1, least - 1, -1):
            opener = open_runs[place]
            if opener.mark == run.mark and _fit(opener, run):
                size = opener.count if run.mark == "~" else min(2, opener.count, run.count)
                style = "strike" if run.mark == "~" else "bold" if size == 2 else "italic"
                opener.opens.insert(0, style)
                run.closes.append(style)
                opener.count -= size
                run.count -= size
                del open_runs[place + (1 if opener.count else 0) :]
                for each, known in without.items():
                    without[each] = min(known, len(open_runs))
                return True
        without[key] = len(open_runs)
        return False

    def _spans(self) -> list[Span]:
        spans: list[Span] = []
        active: Counter[str] = Counter()
        for piece in self._pieces:
            active.subtract(piece.closes)
            text = piece.mark * piece.count if piece.mark else piece.text
            if text:
                styles = [STYLES[name] for name in ("bold", "italic", "strike", "link") if active[name] > 0]
                spans.append((";".join([*styles, *([piece.style] if piece.style else [])]), text))
            active.update(piece.opens)
        return spans


def read_inline(text: str, code_style: str = "36") -> list[Span]:
    """Return a text as spans of one style each; a newline in them is a break that was asked for."""
    return _Reader(text.strip(" "), code_style).read()


def _fit(opener: _Piece, closer: _Piece) -> bool:
    if closer.mark == "~":
        return opener.count == closer.count
    # CommonMark's rule of three: `**a*` and the like do not pair by accident.
    is_odd = (opener.can_close or closer.can_open) and (opener.size + closer.size) % 3 == 0
    return not is_odd or (opener.size % 3 == 0 and closer.size % 3 == 0)


def _flanks(before: str, after: str) -> tuple[bool, bool]:
    """Return whether a run between these stands at the left of something, and at the right."""
    is_left = not after.isspace() and (not _is_punctuation(after) or before.isspace() or _is_punctuation(before))
    is_right = not before.isspace() and (not _is_punctuation(before) or after.isspace() or _is_punctuation(after))
    return is_left, is_right


def _is_punctuation(character: str) -> bool:
    return not character.isalnum() and not character.isspace() and character != "\ufffd"
