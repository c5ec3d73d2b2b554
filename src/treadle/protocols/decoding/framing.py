"""Splits a provider's bytes into frames: an event stream, or one JSON document, which is a stream of one frame.

The first character decides which of the two it is. Nothing here knows what a frame means.
"""

import msgspec

from treadle.core.errors import BrokenStream, ErrorInfo, UpstreamError
from treadle.protocols.sse import LINE_BYTES_MAX, SseFrame, SseReader

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_DATA = b"data: "


class Intake:
    """Reads one answer. Once it is known to be an event stream, its `reader` is fed with the rest."""

    reader: SseReader | None = None
    _failure: ErrorInfo | None = None
    _head: bytes = b""
    _document: list[bytes] | None = None
    _document_bytes: int = 0

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max

    @property
    def is_document(self) -> bool:
        """Whether the answer is one JSON document."""
        return self._document is not None

    @property
    def failure(self) -> ErrorInfo | None:
        """Why the bytes cannot be read any further, if they cannot."""
        if self.reader is not None and self.reader.overflowed:
            return too_large("a line of the stream is over the bound")
        return self._failure

    def lines(self, data: bytes) -> list[bytes] | None:
        """Return the data of the frames that these bytes are, if each is one line and nothing else; None otherwise."""
        if self.reader is None:
            if self._head or self._document is not None or not data.startswith(_DATA):
                return None
            self.reader = SseReader(self._line_bytes_max, is_begun=True, tells_damage=True)
        return self.reader.lines(data)

    def feed(self, data: bytes) -> list[SseFrame]:
        """Return the frames that these bytes complete."""
        if self.reader is None and self._document is None:
            data = self._begin(data)
        if self.reader is not None:
            return self.reader.feed(data)
        if self._document is not None:
            self._hold(self._document, data)
        return []

    def finish(self) -> list[SseFrame]:
        """Return what the end of the bytes leaves: the open frame, or the whole document."""
        if self._document is not None:
            try:
                return [SseFrame(data=b"".join(self._document).decode())]
            except UnicodeDecodeError:
                return [SseFrame(damage="it is not UTF-8")]
        return [] if self.reader is None else self.reader.finish()

    def _begin(self, data: bytes) -> bytes:
        """Decide from the first character what the bytes are, and return those to read."""
        head = (self._head + data).lstrip(_BLANK)
        self._head = b""
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        head = head.removeprefix(_BOM).lstrip(_BLANK)
        if head[:1] in (b"{", b"["):
            self._document = []
        elif head[:1] == b"<":
            self._failure = BrokenStream("The upstream answered with a page of HTML instead of a stream.").info
        elif head:
            self.reader = SseReader(self._line_bytes_max, tells_damage=True)
        return head

    def _hold(self, document: list[bytes], data: bytes) -> None:
        self._document_bytes += len(data)
        document.append(data)
        if self._document_bytes > self._line_bytes_max:
            self._failure = too_large("the answer is over the bound")


def too_large(what: str) -> ErrorInfo:
    """Return the failure of an upstream that sends more than is held; it would do so again."""
    error = UpstreamError(f"The upstream sent too much: {what}.", code="upstream_too_large").info
    return msgspec.structs.replace(error, retryable=False)
