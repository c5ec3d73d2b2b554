import pytest

from treadle.protocols.decoding.framing import Intake
from treadle.protocols.sse import SseFrame


@pytest.mark.parametrize("head", [b"", b"\xef\xbb\xbf", b" \n", b"\n\xef\xbb\xbf "])
def test_a_stream_and_a_document_are_told_apart_by_their_first_character(head: bytes) -> None:
    """Byte order marks and blanks before it, in single bytes, change nothing."""
    for body, is_document in ((b"data: x\n\n", False), (b'{"a":1}', True), (b"[1]", True)):
        source = Intake()
        frames: list[SseFrame] = []
        for byte in head + body:
            frames += source.feed(bytes([byte]))
        frames += source.finish()
        assert frames == [SseFrame(data=body.decode() if is_document else "x")]
        assert source.is_document is is_document
        assert source.failure is None


def test_a_page_of_html_is_a_failure() -> None:
    """A proxy's error page is no answer."""
    source = Intake()
    assert source.feed(b"<html>") == []
    assert source.failure is not None
    assert source.failure.code == "upstream_broken_stream"


def test_nothing_at_all_is_no_frame() -> None:
    """An empty body says nothing, not even what it is."""
    source = Intake()
    assert (source.feed(b""), source.finish(), source.failure) == ([], [], None)


def test_bytes_over_the_bound_are_a_failure() -> None:
    """Neither a document nor a line of a stream is held beyond it."""
    document = Intake(8)
    document.feed(b'{"a":"' + b"x" * 8)
    assert document.failure is not None
    assert document.failure.code == "upstream_too_large"
    stream = Intake(8)
    stream.feed(b"data: " + b"x" * 9)
    assert stream.failure is not None
    assert stream.failure.code == "upstream_too_large"
