"""Server-sent events: bytes in, frames out, and the other way round.

The reader takes any line ending, any chunking and any broken UTF-8 in time linear in its input, and holds at most
`line_bytes_max` bytes of a line or of a frame's data. It knows nothing of what the data means: `[DONE]` is a frame
like any other.
"""

import re
from functools import lru_cache

import msgspec

LINE_BYTES_MAX = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_BLANK_LINES = re.compile(rb"\n{3,}")


class Frame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event: `event` is empty where the stream gives no name, `id` is the last one the stream gave."""

    event: str = ""
    data: str = ""
    id: str = ""


class SseReader:
    """Turns the bytes of an event stream into frames.

    A stream that breaks the bound is not read any further: `overflowed` says so, and the frames before it stand.
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._event = ""
        self._id = ""
        self._after_cr = False
        self._at_start = True
        self._overflowed = False

    @property
    def overflowed(self) -> bool:
        """Tell whether a line or a frame was over the bound."""
        return self._overflowed

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        frames: list[Frame] = []
        if not data or self._overflowed:
            return frames
        if self._after_cr and data[0] == 0x0A:
            data = data[1:]
        self._after_cr = False
        if b"\r" in data:
            self._after_cr = data[-1] == 0x0D
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n\n\n" in data:
            # Blank lines after the first mean nothing, and a packed answer can hold millions of them.
            data = _BLANK_LINES.sub(b"\n\n", data)
        *ended, rest = data.split(b"\n")
        for line in ended:
            if self._line or self._at_start or len(line) > self._line_bytes_max:
                self._end_line(line, frames)
            elif not line:
                if len(self._data) == 1:
                    text = self._data.pop().decode("utf-8", "replace")
                    frames.append(Frame(event=self._event, data=text, id=self._id))
                    self._data_bytes = 0
                    self._event = ""
                else:
                    self._end_frame(frames)
            elif line.startswith(b"data: ") and not self._data:
                # What nearly every line of a stream is.
                self._data.append(line[6:])
                self._data_bytes = len(line) - 5
            else:
                self._read_line(line)
            if self._overflowed:
                return frames
        self._hold(rest)
        return frames

    def finish(self) -> list[Frame]:
        """Return the frame that the end of the stream leaves open, if there is one.

        The specification drops it; servers that forget the last blank line are too many. A frame that was cut in
        the middle is delivered as well: half a JSON document does not parse, so the codec sees that it was cut.
        """
        frames: list[Frame] = []
        if not self._overflowed:
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
        self._overflowed = True
        self._line.clear()
        self._data.clear()

    def _end_line(self, line: bytes, frames: list[Frame]) -> None:
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
            self._read_line(line)
        else:
            self._end_frame(frames)

    def _read_line(self, line: bytes) -> None:
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

    def _end_frame(self, frames: list[Frame]) -> None:
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            frames.append(Frame(event=self._event, data=data.decode("utf-8", "replace"), id=self._id))
            self._data.clear()
            self._data_bytes = 0
        self._event = ""


def write_frame(data: bytes, event: str | None = None, id: str | None = None) -> bytes:
    """Write one frame. `event` and `id` come from closed sets, never from a model or a tool."""
    head = b""
    if event is not None:
        head += b"event: " + _field(event) + b"\n"
    if id is not None:
        head += b"id: " + _field(id) + b"\n"
    if b"\n" in data or b"\r" in data:
        # A client's pretty-printed JSON may be echoed inside ours: a raw line end would tear the frame.
        data = b"\ndata: ".join(data.splitlines())
    return head + b"data: " + data + b"\n\n"


@lru_cache(maxsize=256)
def _field(value: str) -> bytes:
    assert not {"\n", "\r"} & set(value), "a field of a frame is one line"
    return value.encode()


def _join(pieces: list[bytes]) -> bytes:
    return b"".join(pieces)
