from typing import Any

import pytest

from stream.answers import CHUNK_SIZES, decode
from treadle.core.events import Failed, Finished, ModelEvent, Noted
from treadle.core.ids import CountingIds
from treadle.protocols.decoding.item_builder import ItemBuilder
from treadle.protocols.decoding.stream_decoder import AnswerDecoder


class Counting(ItemBuilder):
    """A ledger that counts what is told."""

    def tell(self, data: str) -> None:
        """Say a frame, and hold it."""
        self._has_room(data)
        self.note(data, "kept", "")


class Plain(AnswerDecoder[Counting]):
    """The smallest protocol: `end` ends an answer, every other frame is told by its name and its words."""

    assembly_class = Counting

    def __init__(self) -> None:
        super().__init__(CountingIds(), text_bytes_max=100, arguments_bytes_max=10)

    def _read_frame(self, name: str, data: str) -> None:
        if data == "end":
            self._close(Finished(stop="done", raw_stop="end"))
        else:
            self._assembly.tell(f"{name}:{data}")

    def _read_document(self, data: str) -> None:
        self._assembly.tell(data)

    def _end(self, *, is_explicit: bool) -> None:
        if is_explicit:
            self._close(Finished(stop="done", raw_stop="said"))
        else:
            self._cut_off()


def told(events: list[ModelEvent]) -> list[Any]:
    """Return what was told in a word each; the last is how it ended."""
    words: list[Any] = []
    for event in events:
        match event:
            case Noted():
                words.append(event.note.code)
            case Finished():
                words.append(("finished", event.raw_stop))
            case Failed():
                words.append(("failed", event.error.code))
            case _:
                words.append(event)
    return words


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"event: a\ndata: x\n\ndata: end\n\n", ["a:x", ("finished", "end")]),
        (b"data: x\n\ndata: [DONE]\n\n", [":x", ("finished", "said")]),
        (b"data: x\n\ndata:  [DONE] \n\n", [":x", ("finished", "said")]),
        (b'{"a":1}', ['{"a":1}', ("finished", "said")]),
        (b"data: x\n\n", [":x", ("failed", "upstream_broken_stream")]),
        (b"", [("failed", "upstream_broken_stream")]),
        (b"<html></html>", [("failed", "upstream_broken_stream")]),
        (b"data: \n\n: ping\n\ndata: end\n\n", [("finished", "end")]),
    ],
    ids=["own end", "done", "blanks", "document", "cut", "nothing", "html", "empty frames"],
)
def test_every_answer_has_one_end_in_any_chunking(body: bytes, expected: list[Any]) -> None:
    """The upstream's word, the end of a document, or a failure where neither came."""
    for size in CHUNK_SIZES:
        assert told(decode(Plain(), body, size)) == expected


@pytest.mark.parametrize("end", ["end", "[DONE]"])
def test_nothing_comes_behind_the_end(end: str) -> None:
    """Neither from the same bytes nor from later ones."""
    decoder = Plain()
    assert told(decoder.feed(f"data: {end}\n\ndata: late\n\n".encode()))[1:] == []
    assert decoder.feed(b"data: later\n\ndata: end\n\n") == []
    assert decoder.finish() == []


@pytest.mark.parametrize(
    "body",
    [
        b"data: " + b"x" * 101 + b"\n\ndata: late\n\ndata: end\n\n",
        b'{"a":"' + b"x" * 101 + b'"}',
    ],
    ids=["stream", "document"],
)
def test_an_answer_over_its_bounds_fails_and_ends_there(body: bytes) -> None:
    """It is not called finished, and what follows is not read."""
    words = told(decode(Plain(), body))
    assert len(words) == 2
    assert words[-1] == ("failed", "upstream_too_large")


def test_an_end_does_not_hide_a_broken_bound() -> None:
    """The frame that ends an answer may be the one that is too much."""

    class Greedy(Plain):
        def _read_frame(self, name: str, data: str) -> None:
            self._assembly.tell("x" * 101)
            self._close(Finished(stop="done"))

    assert told(decode(Greedy(), b"data: x\n\n"))[1:] == [("failed", "upstream_too_large")]
