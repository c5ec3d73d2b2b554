"""Bytes of an upstream as frames: an event stream, or one whole JSON document, which is a stream of one frame.

Which of the two it is, its first character says. Nothing here knows what a frame means.
"""

from treadle.canon.errors import BrokenStream, ErrorInfo, UpstreamError
from treadle.wire.sse import LINE_BYTES_MAX, Frame, SseReader

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class Intake:
    """Reads one answer. `failure` is set once the bytes cannot be read any further."""

    failure: ErrorInfo | None = None
    _head: bytes = b""
    _reader: SseReader | None = None
    _document: list[bytes] | None = None
    _document_bytes: int = 0

    @property
    def is_document(self) -> bool:
        """Tell whether the answer is one JSON document."""
        return self._document is not None

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        if self._reader is None and self._document is None:
            data = self._begin(data)
        reader = self._reader
        if reader is not None:
            frames = reader.feed(data)
            if reader.overflowed:
                self.failure = too_large("a line of the stream is over the bound")
            return frames
        if self._document is not None:
            self._hold(self._document, data)
        return []

    def finish(self) -> list[Frame]:
        """Return what the end of the bytes leaves: the open frame, or the whole document."""
        if self._document is not None:
            return [Frame(data=b"".join(self._document).decode("utf-8", "replace"))]
        return [] if self._reader is None else self._reader.finish()

    def _begin(self, data: bytes) -> bytes:
        """Tell from the first character what the bytes are, and return those to read."""
        head = (self._head + data).lstrip(_BLANK)
        self._head = b""
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        head = head.removeprefix(_BOM).lstrip(_BLANK)
        if head[:1] in (b"{", b"["):
            self._document = []
        elif head[:1] == b"<":
            self.failure = BrokenStream("The upstream answered with a page of HTML instead of a stream.").info
        elif head:
            self._reader = SseReader()
        return head

    def _hold(self, document: list[bytes], data: bytes) -> None:
        self._document_bytes += len(data)
        document.append(data)
        if self._document_bytes > LINE_BYTES_MAX:
            self.failure = too_large("the answer is over the bound")


def too_large(what: str) -> ErrorInfo:
    """Return the failure of an upstream that sends more than is held."""
    return UpstreamError(f"The upstream sent too much: {what}.", code="upstream_too_large").info
