import msgspec
import pytest

from treadle.protocols.decoding.answer_meter import AnswerMeter
from treadle.protocols.responses.upstream_content_parts import (
    PARTS_MAX,
    ContentPart,
    PartKind,
    PartRow,
    PartText,
    TextPiece,
)


class Row:
    """A row that keeps what it sent."""

    def __init__(self, bytes_max: int = 1000) -> None:
        self.sent: list[tuple[str, int, str]] = []
        self.meter = AnswerMeter(bytes_max)
        self.row = PartRow(self._send, self.meter)

    def feed(self, key: int, text: str, kind: PartKind = "text") -> None:
        """Add text."""
        self.row.feed(key, TextPiece(kind=kind, text=text))

    def settle(self, *texts: str) -> None:
        """End all parts as text."""
        self.row.settle([TextPiece(kind="text", text=text) for text in texts])

    def _send(self, part: ContentPart, text: str) -> None:
        self.sent.append((part.kind, part.number, text))


def test_text_adds_what_a_whole_version_has_beyond_it() -> None:
    """A whole text continues the streamed one, or is another."""
    said = PartText(AnswerMeter(100))
    said.add("a")
    said.add("b")
    assert [said.begins(whole) for whole in ("ab", "abc", "a", "xb", "")] == [True, True, False, False, False]
    assert said.extend("abc") == "c"
    assert said.text == "abc"


def test_a_waiting_half_gives_way_to_the_whole_text() -> None:
    """What completes the pair may come in the whole text, or never."""
    said = PartText(AnswerMeter(100))
    assert said.add("a\ud83d") == "a"
    assert said.extend("a😀") == "😀"
    assert said.add("\ud83d") == ""
    assert said.end() == "\ufffd"
    assert said.text == "a😀\ufffd"


def test_a_later_part_waits_for_those_before_it() -> None:
    """Parts go out one after the other, each whole."""
    row = Row()
    row.feed(0, "a")
    row.feed(1, "x")
    row.feed(0, "b")
    row.row.complete(0, TextPiece(kind="text", text="abc"))
    row.feed(1, "y")
    row.feed(0, "late")
    row.row.close()
    assert row.sent == [("text", 0, "a"), ("text", 0, "b"), ("text", 0, "c"), ("text", 1, "x"), ("text", 1, "y")]
    assert [part.content.text for part in row.row.parts] == ["abc", "xy"]
    assert not row.row.disagrees


def test_numbers_count_parts_of_a_message_together_and_those_of_reasoning_apart() -> None:
    """Text and refusals share the places of a message; summaries and raw reasoning have their own."""
    row = Row()
    for kind in ("text", "refusal", "raw", "summary", "raw"):
        row.feed(len(row.row.parts), "x", kind)  # type: ignore[arg-type]
    assert [(part.kind, part.number) for part in row.row.parts] == [
        ("text", 0),
        ("refusal", 1),
        ("raw", 0),
        ("summary", 0),
        ("raw", 1),
    ]


def test_parts_without_text_are_none() -> None:
    """Neither an empty piece nor an empty whole begins a part."""
    row = Row()
    row.feed(0, "")
    row.settle("", "x")
    assert row.sent == [("text", 0, "x")]


def test_an_empty_whole_takes_nothing_back() -> None:
    """Minimal upstreams end every part with an empty text."""
    row = Row()
    row.feed(0, "a")
    row.settle("")
    assert (row.row.parts[0].content.text, row.row.disagrees) == ("a", False)


def test_parts_are_found_by_number_and_else_by_order() -> None:
    """A list that numbers its parts otherwise than the deltas did means the same parts."""
    row = Row()
    row.feed(4, "a")
    row.feed(9, "b")
    row.settle("a!", "b!")
    assert [part.content.text for part in row.row.parts] == ["a!", "b!"]


@pytest.mark.parametrize("whole", ["x", "b"])
def test_a_whole_that_is_another_text_is_told(whole: str) -> None:
    """What was streamed stands, because somebody has read it."""
    row = Row()
    row.feed(0, "ab")
    row.settle(whole)
    assert (row.row.parts[0].content.text, row.row.disagrees) == ("ab", True)


def test_a_part_that_was_said_whole_takes_no_tail() -> None:
    """Two whole texts of one part can only be the same."""
    row = Row()
    row.row.complete(0, TextPiece(kind="text", text="a"))
    row.settle("a")
    assert not row.row.disagrees
    row.settle("ab")
    assert [part.content.text for part in row.row.parts] == ["a"]
    assert row.row.disagrees


def test_a_part_of_which_nothing_went_out_is_what_its_whole_text_says() -> None:
    """The pieces that were held behind another part are forgotten where they differ."""
    row = Row()
    row.row.feed(0, TextPiece(kind="text", text="a"))
    row.row.feed(1, TextPiece(kind="text", text="xz"))
    row.row.complete(1, TextPiece(kind="text", text="xyz"))
    row.row.complete(0, TextPiece(kind="text", text="a"))
    assert [part.content.text for part in row.row.parts] == ["a", "xyz"]
    assert not row.row.disagrees


def test_logprobs_and_annotations_belong_to_their_part() -> None:
    """Streamed logprobs are not doubled by the whole list; the whole list of annotations replaces the streamed."""
    one, two = msgspec.Raw(b'{"token":"a"}'), msgspec.Raw(b'{"token":"b"}')
    row = Row()
    row.row.feed(0, TextPiece(kind="text", text="a", logprobs=[one]))
    row.row.complete(0, TextPiece(kind="text", text="a", logprobs=[one, two], annotations=[two]))
    part = row.row.parts[0]
    assert (part.logprobs, part.annotations) == ([one], [two])
    fresh = Row()
    fresh.row.complete(0, TextPiece(kind="text", text="a", logprobs=[one, two]))
    assert fresh.row.parts[0].logprobs == [one, two]


def test_bounds_are_told() -> None:
    """Bytes and parts have an end, and the meter says which."""
    row = Row(bytes_max=3)
    row.feed(0, "é")
    assert row.meter.overflow is None
    row.feed(0, "é")
    assert row.meter.overflow == "the answer is over 3 bytes"
    many = Row(bytes_max=10**6)
    for key in range(PARTS_MAX + 1):
        many.feed(key, "x")
    assert many.meter.overflow == f"more than {PARTS_MAX} parts in one item"
    assert len(many.row.parts) == PARTS_MAX
