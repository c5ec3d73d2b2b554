"""Where text is code or a quotation: fences, inline code, quoted lines. Line by line, without holding any of it back.

A call is never read there. Fences follow CommonMark, but for their indentation: any is one. Inline code is looked for
within its line only.
"""

import re
from collections.abc import Sequence

from treadle.protocols.text_calls.resumable_reader import ResumableReader, Wait

_HEAD = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*")
HEAD_CHARS = frozenset(" \t-*+.)0123456789`~>")
"""What may stand before the text of a line without making it an ordinary one."""

_FENCE = re.compile(r"(`{3,}|~{3,})(.*)", re.DOTALL)
_HEAD_CHARS_MAX = 256
_RUNS_MAX = 64
_TICKS = re.compile(r"`+|\n")


class MarkdownLines:
    """Knows of the line that is being read whether a call may begin in it."""

    __slots__ = ("_fence", "_head", "_is_fence_line", "_is_quoted", "_is_run_open", "runs")

    def __init__(self) -> None:
        self._fence: tuple[str, int] | None = None
        self._head: str | None = ""
        self._is_fence_line = False
        self._is_quoted = False
        self._is_run_open = False
        self.runs: list[int] = []

    @property
    def is_fresh(self) -> bool:
        """Return whether nothing but a few blanks stands on the line yet, outside of any fence."""
        return self._head is not None and self._fence is None and not self._head.strip(" ") and len(self._head) < 4

    @property
    def is_code(self) -> bool:
        """Return whether the place is code or a quotation for sure."""
        return self._fence is not None or self._is_fence_line or self._is_quoted

    @property
    def is_idle(self) -> bool:
        """Return whether text without a line feed or a backtick changes nothing."""
        return self._head is None and not self._is_run_open

    def feed(self, text: str) -> None:
        """Pass text that holds neither line feed nor backtick."""
        if not text:
            return
        self._is_run_open = False
        self._grow(text)

    def ticks(self, count: int, *, may_grow: bool) -> None:
        """Pass a run of backticks; more of it may come where the text was cut behind it."""
        self._grow("`" * min(count, _HEAD_CHARS_MAX))
        if self._is_run_open and self.runs:
            self.runs[-1] += count
        elif len(self.runs) < _RUNS_MAX:
            self.runs.append(count)
        self._is_run_open = may_grow

    def newline(self) -> None:
        """Pass a line feed."""
        if self._is_fence_line and self._head is not None:
            self._toggle(self._head)
        self._head = ""
        self._is_fence_line = self._is_quoted = self._is_run_open = False
        self.runs.clear()

    def settle(self) -> None:
        """Forget the backticks so far: they open nothing."""
        self.runs.clear()
        self._is_run_open = False

    def reset(self) -> None:
        """Begin anew, as at the start of a text."""
        self.__init__()

    def _grow(self, text: str) -> None:
        """Add to the head of the line, until it is known that the line is an ordinary one."""
        if self._head is None:
            return
        self._head = (self._head + text)[:_HEAD_CHARS_MAX]
        head = _HEAD.match(self._head)
        assert head is not None
        rest = self._head[head.end() :]
        if self._is_fence_line or rest.startswith(("```", "~~~")):
            self._is_fence_line = self._is_fence_line or self._may_toggle(rest)
        elif rest.startswith(">") and self._fence is None:
            self._is_quoted = True
        is_head = len(self._head) < _HEAD_CHARS_MAX and HEAD_CHARS.issuperset(self._head)
        if not (self._is_fence_line or is_head):
            self._head = None

    def _may_toggle(self, rest: str) -> bool:
        return self._fence is None or rest.startswith(self._fence[0])

    def _toggle(self, line: str) -> None:
        """Open or close a fence with a line that is whole."""
        head = _HEAD.match(line)
        assert head is not None
        found = _FENCE.match(line[head.end() :])
        if found is None:
            return
        mark, info = found[1], found[2]
        if self._fence is None:
            if mark[0] == "~" or "`" not in info:
                self._fence = (mark[0], len(mark))
        elif mark[0] == self._fence[0] and len(mark) >= self._fence[1] and not info.strip():
            self._fence = None


def unpaired(runs: Sequence[int]) -> bool:
    """Return whether a run of backticks is left that another of its length may still close."""
    place = 0
    while place < len(runs):
        close = next((each for each in range(place + 1, len(runs)) if runs[each] == runs[place]), None)
        if close is None:
            return True
        place = close + 1
    return False


def inline_end(reader: ResumableReader, runs: Sequence[int]) -> Wait[int]:
    """Read the rest of the line: return how far inline code reaches that opened before this place, else 0."""
    start = reader.mark
    later: list[tuple[int, int]] = []
    while len(later) < _RUNS_MAX:
        found = _TICKS.search(reader.text, reader.at)
        if found is None:
            reader.at = len(reader.text)
            if reader.is_ended:
                break
            yield
            continue
        if found[0] == "\n":
            break
        if found.end() == len(reader.text) and not reader.is_ended:
            reader.at = found.start()
            yield
            if len(reader.text) - reader.at > _HEAD_CHARS_MAX:
                break
            continue
        reader.at = found.end()
        later.append((len(found[0]), reader.mark - start))
    return _reach(list(runs), later)


def _reach(runs: list[int], later: list[tuple[int, int]]) -> int:
    """Pair the runs as CommonMark does; return where the code around the place between the two lists ends."""
    lengths = [*runs, *(length for length, _ in later)]
    place = 0
    while place < len(runs):
        close = next((each for each in range(place + 1, len(lengths)) if lengths[each] == lengths[place]), None)
        if close is None:
            place += 1
        elif close < len(runs):
            place = close + 1
        else:
            return later[close - len(runs)][1]
    return 0
