import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocols import sse
from treadle.protocols.sse import SseFrame, SseReader, write_frame


def _read(data: bytes, size: int = 1 << 30, line_bytes_max: int = 1 << 20) -> list[SseFrame]:
    reader = SseReader(line_bytes_max)
    frames: list[SseFrame] = []
    for start in range(0, len(data), size):
        frames += reader.feed(data[start : start + size])
    return frames + reader.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_every_line_ending_gives_the_same_frames(end: bytes, size: int) -> None:
    """LF, CRLF and CR end lines, also where CRLF is cut in two."""
    data = b": hello\nevent: a\nid: 7\ndata: 1\n\ndata:2\ndata: 3\n\n".replace(b"\n", end)
    assert _read(data, size) == [SseFrame(event="a", data="1", id="7"), SseFrame(data="2\n3", id="7")]


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        (b"\xef\xbb\xbfdata: x\n\n", [SseFrame(data="x")]),
        (b"data: \xf0\x9f\x98\x80\n\n", [SseFrame(data="😀")]),
        (b"data: \xff\n\n", [SseFrame(data="\ufffd")]),
        (b"data\n\n", [SseFrame(data="")]),
        (b"data:  x\n\n", [SseFrame(data=" x")]),
        (b"event: lost\n\ndata: x\n\n", [SseFrame(data="x")]),
        (b"id: a\0b\ndata: x\n\n", [SseFrame(data="x")]),
        (b"unknown: y\nretry: 5\n: c\ndata: [DONE]\n\n", [SseFrame(data="[DONE]")]),
        (b"data: x", [SseFrame(data="x")]),
        (b"data: x\n", [SseFrame(data="x")]),
        (b"data: x\n\n\n\n", [SseFrame(data="x")]),
        (b"event: alone", []),
        (b"", []),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_fields_are_read_as_the_specification_says(data: bytes, frames: list[SseFrame], size: int) -> None:
    """BOM, broken UTF-8, empty and unknown fields; only the frame left open at the end is treated kinder."""
    assert _read(data, size) == frames


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "bad", [b"data: " + b"x" * 50, b"data: " + b"x" * 50 + b"\n\n", b"data: 123456789\n" * 5, b"x" * 50]
)
def test_a_line_or_frame_over_the_bound_ends_the_reading(bad: bytes, size: int) -> None:
    """Frames before it stand; nothing behind it is read, and the reader says so."""
    reader = SseReader(line_bytes_max=32)
    data = b"data: ok\n\n" + bad + b"\n\ndata: late\n\n"
    frames: list[SseFrame] = []
    for start in range(0, len(data), size):
        frames += reader.feed(data[start : start + size])
    assert frames + reader.finish() == [SseFrame(data="ok")]
    assert reader.overflowed


def test_a_line_at_the_bound_is_read() -> None:
    """The bound itself is allowed."""
    data = b"data: " + b"x" * 26 + b"\n\n"
    assert [_read(data, size, line_bytes_max=32) for size in (1, 1000)] == [[SseFrame(data="x" * 26)]] * 2


@given(st.binary(max_size=200), st.lists(st.integers(1, 9), max_size=50))
def test_any_chunking_of_any_bytes_gives_the_same_frames(data: bytes, sizes: list[int]) -> None:
    """Frames depend on the bytes only."""
    data = data.replace(b"\x01", b"\n\n").replace(b"\x02", b"data:").replace(b"\x03", b"\r")
    reader, frames, start = SseReader(), list[SseFrame](), 0
    for size in sizes:
        frames += reader.feed(data[start : start + size])
        start += size
    frames += reader.feed(data[start:]) + reader.finish()
    assert frames == _read(data)


def test_every_byte_of_a_line_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line fed byte by byte is not copied again for every byte."""
    joined = 0
    original = sse._join  # pyright: ignore[reportPrivateUsage]

    def counting(pieces: list[bytes]) -> bytes:
        nonlocal joined
        joined += sum(len(piece) for piece in pieces)
        return original(pieces)

    monkeypatch.setattr(sse, "_join", counting)
    data = b"data: " + b"x" * 5_000 + b"\n\n"
    assert len(_read(data, size=1)) == 1
    assert joined == len(data) - 2


def test_frames_are_written_in_the_order_event_id_data() -> None:
    """The writer's bytes are exact."""
    assert write_frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert write_frame(b"{}", event="ping", id="7") == b"event: ping\nid: 7\ndata: {}\n\n"


def test_a_line_end_inside_the_data_does_not_tear_the_frame() -> None:
    """Pretty-printed JSON becomes several data lines, which the reader joins again."""
    assert _read(write_frame(b'{\r\n "a": 1\n}') + write_frame(b"2")) == [
        SseFrame(data='{\n "a": 1\n}'),
        SseFrame(data="2"),
    ]


def test_a_field_of_two_lines_is_a_bug_of_the_caller() -> None:
    """Event names come from closed sets, so a line end in one is refused loudly."""
    with pytest.raises(AssertionError):
        write_frame(b"{}", event="a\ndata: forged")


def test_blank_lines_without_end_cost_nothing() -> None:
    """A packed answer can hold millions of them: they are passed over at once and end nothing twice."""
    reader = SseReader()
    frames = reader.feed(b"data: a" + b"\n" * 5_000_000 + b"data: b" + b"\r\n" * 1_000_000)
    assert [frame.data for frame in frames] == ["a", "b"]


@pytest.mark.parametrize(("last", "is_over"), [(9, False), (10, False), (11, True)])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_frame_of_several_lines_may_be_as_long_as_one_line(last: int, is_over: bool, size: int) -> None:
    """The line ends between them count; the bound itself is allowed."""
    reader = SseReader(line_bytes_max=32)
    data = b"data: aaaaaaaaaa\ndata: bbbbbbbbbb\ndata: " + b"c" * last + b"\n\n"
    frames = [frame for start in range(0, len(data), size) for frame in reader.feed(data[start : start + size])]
    assert reader.overflowed is is_over
    assert frames == ([] if is_over else [SseFrame(data="aaaaaaaaaa\nbbbbbbbbbb\n" + "c" * last)])


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_usual_and_unusual_frames_stand_in_one_read(size: int) -> None:
    """Whatever comes before or behind a frame of one line, it is read as it would be alone."""
    data = (
        "data: é\n\nevent: a\ndata: 1\n\nid: 7\ndata: 2\n\ndata: 3\n\n: c\ndata: 4\n\nevent: b\nevent: c\ndata: 5\n\n"
        "data:6\n\ndata: 7\ndata: 8\n\n\n\ndata: 9\n\nevent: lost\n\ndata: ü\n\ndata: cut"
    ).encode()
    frames = [(frame.event, frame.data, frame.id) for frame in _read(data, size)]
    assert frames == [
        ("", "é", ""),
        ("a", "1", ""),
        ("", "2", "7"),
        ("", "3", "7"),
        ("", "4", "7"),
        ("c", "5", "7"),
        ("", "6", "7"),
        ("", "7\n8", "7"),
        ("", "9", "7"),
        ("", "ü", "7"),
        ("", "cut", "7"),
    ]


_PIECES = [
    b"data: ",
    b"\n\n",
    b"\n",
    b"\r",
    b"x",
    b"data:",
    b"\xff",
    b"event: a\n",
    b"id: 7\n",
    b": c",
    b"\xef\xbb\xbf",
]


@given(st.lists(st.lists(st.sampled_from([*_PIECES, b"data: x\n\n"]), max_size=4).map(b"".join), max_size=6))
def test_frames_that_need_not_be_fed_are_those_that_would_be_read(reads: list[bytes]) -> None:
    """What `lines` and `lone` tell of a read is what `feed` would, and they leave no trace."""
    short, long = SseReader(line_bytes_max=24), SseReader(line_bytes_max=24)
    for data in reads:
        lone, lines, frames = short.lone(data), short.lines(data), long.feed(data)
        assert lone is None or lines is None or lines == [lone]
        lines = lines if lone is None else [lone]
        if lines is None:
            assert short.feed(data) == frames
        else:
            assert [line.decode("utf-8", "replace") for line in lines] == [frame.data for frame in frames]
        assert short.overflowed == long.overflowed
    assert short.finish() == long.finish()


def test_whole_frames_of_one_line_need_not_be_fed() -> None:
    """One frame, or several in one read, but nothing that is cut, named, or waits behind something."""
    reader = SseReader(is_begun=True)
    assert reader.lines(b"data: a\n\n") == [b"a"]
    assert reader.lines(b"data: a\n\ndata: \n\ndata: b\n\n") == [b"a", b"", b"b"]
    for other in (
        b"",
        b"data: a\n",
        b"data: a\n\n\n\n",
        b"data: a\nb\n\n",
        b"event: e\ndata: a\n\n",
        b"data: a\r\n\r\n",
    ):
        assert reader.lines(other) is None
    reader.feed(b"data: a")
    assert reader.lines(b"data: b\n\n") is None
    assert SseReader().lines(b"data: a\n\n") is None


def test_one_frame_of_one_line_need_not_be_fed() -> None:
    """That alone, and only between two frames."""
    reader = SseReader(is_begun=True)
    assert reader.lone(b"data: a\n\n") == b"a"
    for other in (b"", b"data: a\n", b"data: a\n\ndata: b\n\n", b"event: e\ndata: a\n\n", b"data: a\r\n\n"):
        assert reader.lone(other) is None
    reader.feed(b"data: a")
    assert reader.lone(b"data: b\n\n") is None


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_a_reader_that_tells_damage_says_where_it_is(size: int) -> None:
    """Between the frames that can be read: a stray line, bytes that are no text, an event without data."""
    body = b"data: a\n\nupstream overloaded\n\ndata: \xff\n\nevent: x\n\n: fine\nretry: 1\nid: 2\n\ndata: b\n\n"
    reader = SseReader(tells_damage=True)
    frames = [frame for at in range(0, len(body), size) for frame in reader.feed(body[at : at + size])]
    assert frames + reader.finish() == [
        SseFrame(data="a"),
        SseFrame(damage="a line is no field of an event stream: 'upstream overloaded'"),
        SseFrame(damage="a frame of 1 bytes is not UTF-8"),
        SseFrame(event="x", damage="an event has no data"),
        SseFrame(data="b", id="2"),
    ]


def test_a_reader_of_other_streams_passes_over_what_the_specification_says() -> None:
    """Browsers do: what they do not know is no frame."""
    assert SseReader().feed(b"data: a\nwords\n\nevent: x\n\ndata: \xff\n\n") == [
        SseFrame(data="a"),
        SseFrame(data="\ufffd"),
    ]


@pytest.mark.parametrize("text", [b"data: \xff\n\n", "data: é\n\n".encode()])
def test_the_short_ways_take_only_what_is_text(text: bytes) -> None:
    """What is none goes the long way, which says so."""
    reader = SseReader(is_begun=True)
    data = text[6:-2] if text.isascii() or b"\xff" not in text else None
    assert (reader.lone(text), reader.lines(text)) == (data, None if data is None else [data])
