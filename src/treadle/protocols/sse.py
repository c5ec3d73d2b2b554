"""Server-sent events: bytes in, frames out, and the other way round.

The reader takes any line ending, any chunking and any broken UTF-8 in time linear in its input, and holds at most
`line_bytes_max` bytes of a line or of a frame's data. It knows nothing of what the data means: `[DONE]` is a frame
like any other.
"""

import re
from functools import lru_cache
from itertools import repeat

import msgspec

LINE_BYTES_MAX = 16 * 1024 * 1024

LF, CR = 0x0A, 0x0D
"""The line ends as numbers: looked for as such they are found several times as fast."""

_BOM = b"\xef\xbb\xbf"
_DATA_BYTES = b"data: "
_DATA = "data: "
_DATA_AT = len(_DATA)
_NEXT_DATA = "\n\ndata: "
_NEXT_DATA_BYTES = b"\n\ndata: "
_BLANK_LINES = re.compile(rb"\n{3,}")
_AT_ONCE_BYTES_MAX = 1_048_576
_PASSED_OVER = frozenset({b"", b"event", b"id", b"retry"})
"""Fields that carry nothing of an answer; the empty name is that of comments."""

SHOWN_BYTES_MAX = 80
"""How much of a line that cannot be read is shown."""


class SseFrame(msgspec.Struct, frozen=True, gc=False):
    """One event: `id` is the last one the stream gave, `event` is empty where the stream gives no name.

    One with a `damage` is no event, but describes what could not be read at this place of the stream.
    """

    data: str = ""
    id: str = ""
    event: str = ""
    damage: str = ""


class SseReader:
    """Turns the bytes of an event stream into frames.

    A stream with a line or a frame over the bound is not read any further: it is `overflowed`, and the frames before
    stand. `is_begun` says that the stream is known to begin with no byte order mark. With `tells_damage` a line that is
    no field of an event stream, and data that is not UTF-8, are frames with a `damage`; else the one is passed over, as
    the specification says, and the other is read with replacements.
    """

    def __init__(
        self, line_bytes_max: int = LINE_BYTES_MAX, *, is_begun: bool = False, tells_damage: bool = False
    ) -> None:
        self._line_bytes_max = line_bytes_max
        self._tells_damage = tells_damage
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._event = ""
        self._id = ""
        self._after_cr = False
        self._at_start = not is_begun
        self._is_between = is_begun
        self.overflowed = False

    def lone(self, data: bytes) -> bytes | None:
        """Return the data of the one frame that these bytes are, if that is one line; None for anything else.

        That is what nearly every read of a slow stream is. Such a frame leaves no trace in the reader, so that it need
        not be fed.
        """
        line, _, rest = data.partition(b"\n")
        if rest != b"\n" or not self._is_between or not line.startswith(_DATA_BYTES) or CR in line:
            return None
        if not (line.isascii() or _is_utf8(line)):
            return None
        return line[_DATA_AT:] if len(line) <= self._line_bytes_max else None

    def lines(self, data: bytes) -> list[bytes] | None:
        """Return the data of the frames that these bytes are, if each is one line and nothing else; None otherwise.

        That is what nearly every read of a fast stream is that names no events; it leaves no trace either.
        """
        if not self._is_between or not data.startswith(_DATA_BYTES) or CR in data:
            return None
        if not (data.isascii() or _is_utf8(data)):
            return None
        lines = data[_DATA_AT:-2].split(_NEXT_DATA_BYTES)
        # Each has two line ends behind it, and if these are all, the last two bytes are among them.
        is_plain = data.count(b"\n") == 2 * len(lines) and data.endswith(b"\n\n")
        return lines if is_plain and len(data) <= self._line_bytes_max else None

    def feed(self, data: bytes) -> list[SseFrame]:
        """Return the frames that these bytes complete."""
        if not data or self.overflowed:
            return []
        if self._after_cr or CR in data:
            data = self._with_line_feeds(data)
        if self._at_start and not self._line and data[:1] != _BOM[:1]:
            self._at_start, self._is_between = False, True
        frames: list[SseFrame] = []
        if self._is_between:
            frames, data = self._usual(data)
        if data:
            self._read_lines(data, frames)
            self._is_between = not (self._line or self._data or self._event or self._at_start or self.overflowed)
        if self._after_cr:
            self._is_between = False
        return frames

    def _with_line_feeds(self, data: bytes) -> bytes:
        """Return the bytes with every line end spelled alike, though one may be cut in two."""
        if self._after_cr and data[0] == LF:
            data = data[1:]
        self._after_cr = data[-1:] == b"\r"
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _usual(self, data: bytes) -> tuple[list[SseFrame], bytes]:
        """Read what nearly every frame of a stream is, data on one line and perhaps a name before it; return the rest.

        A line end is never a part of another character, so all of them can be decoded at once.
        """
        frames: list[SseFrame] = []
        end = data.rfind(b"\n\n")
        if not 0 < end <= _AT_ONCE_BYTES_MAX or end > self._line_bytes_max:
            return frames, data
        try:
            text, rest = data[:end].decode(), data[end + 2 :]
        except UnicodeDecodeError:
            # Line by line: the frames before that place stand.
            return frames, data
        if text.startswith(_DATA):
            lines = text[6:].split(_NEXT_DATA)
            if "\n" not in "".join(lines):
                return list(map(SseFrame, lines, repeat(self._id))), rest
        for block in text.split("\n\n"):
            name, _, line = block.rpartition("\n")
            if not line.startswith(_DATA) or (name and (not name.startswith("event: ") or "\n" in name)):
                left = data[:end].split(b"\n\n")[len(frames) :]
                return frames, b"\n\n".join(left) + data[end:]
            frames.append(SseFrame(line[6:], self._id, name[7:]))
        return frames, rest

    def _read_lines(self, data: bytes, frames: list[SseFrame]) -> None:
        if b"\n\n\n" in data:
            # Blank lines after the first mean nothing, and a packed answer can hold millions of them.
            data = _BLANK_LINES.sub(b"\n\n", data)
        *ended, rest = data.split(b"\n")
        for line in ended:
            self._end_line(line, frames)
            if self.overflowed:
                return
        self._hold(rest)

    def finish(self) -> list[SseFrame]:
        """Return the frame that the end of the stream leaves open, if there is one.

        The specification drops it; servers that forget the last blank line are too many. A frame that was cut in
        the middle is delivered as well: half a JSON document does not parse, so the codec sees that it was cut.
        """
        frames: list[SseFrame] = []
        if not self.overflowed:
            self._end_line(b"", frames)
            self._end_frame(frames)
        return frames

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._line_bytes += len(piece)
        if self._line_bytes > self._line_bytes_max:
            self._overflow()
        else:
            self._line.append(piece)

    def _overflow(self) -> None:
        self.overflowed = True
        self._line.clear()
        self._data.clear()

    def _end_line(self, line: bytes, frames: list[SseFrame]) -> None:
        if self._line:
            self._line.append(line)
            line = _join(self._line)
            self._line.clear()
            self._line_bytes = 0
        if len(line) > self._line_bytes_max:
            self._overflow()
            return
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if line:
            self._read_line(line, frames)
        else:
            self._end_frame(frames)

    def _read_line(self, line: bytes, frames: list[SseFrame]) -> None:
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data_bytes += len(value) + 1
            if self._data_bytes > self._line_bytes_max + 1:
                self._overflow()
            else:
                self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif self._tells_damage and name not in _PASSED_OVER and line.strip():
            text = line[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
            frames.append(SseFrame(damage=f"a line is no field of an event stream: {text!r}"))

    def _end_frame(self, frames: list[SseFrame]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            frames.append(self._frame(data))
            self._data.clear()
            self._data_bytes = 0
        elif self._event and self._tells_damage:
            frames.append(SseFrame(event=self._event, damage="an event has no data"))
        self._event = ""

    def _frame(self, data: bytes) -> SseFrame:
        try:
            return SseFrame(data.decode(), self._id, self._event)
        except UnicodeDecodeError:
            if self._tells_damage:
                return SseFrame(damage=f"a frame of {len(data)} bytes is not UTF-8")
            return SseFrame(data.decode("utf-8", "replace"), self._id, self._event)


def write_frame(data: bytes, event: str | None = None, id: str | None = None) -> bytes:
    """Write one frame. `event` and `id` come from closed sets, never from a model or a tool."""
    head = b""
    if event is not None:
        head += b"event: " + _field(event) + b"\n"
    if id is not None:
        head += b"id: " + _field(id) + b"\n"
    if LF in data or CR in data:
        # A client's pretty-printed JSON may be echoed inside ours: a raw line end would tear the frame.
        data = b"\ndata: ".join(data.splitlines())
    return head + b"data: " + data + b"\n\n"


@lru_cache(maxsize=256)
def _field(value: str) -> bytes:
    assert not {"\n", "\r"} & set(value), "a field of a frame is one line"
    return value.encode()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _join(pieces: list[bytes]) -> bytes:
    return b"".join(pieces)
