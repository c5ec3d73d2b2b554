"""Runs told and told again: frames are counted, and a break is met as each protocol can."""

import msgspec
import pytest

from treadle.canon.events import (
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Numbered,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)
from treadle.canon.items import CallItem, MessageItem, TextPart
from treadle.canon.request import Protocol as ProtocolName
from treadle.canon.request import Request, Surface
from treadle.server.delivery.telling import FoldedRun, Frames, MendedRun, NumberedRun, OneRun, RunIds
from treadle.wire.codec import Encoder
from treadle.wire.protocols import PROTOCOLS
from treadle.wire.resume import DIVERGED

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
ROUND = RoundStarted(round=1, fingerprint="f")
BROKEN = RoundBroken(round=1)
COMPLETED = RunEnded(status="completed", ended_at=2.0)
MENDED: tuple[ProtocolName, ...] = ("chat", "messages", "gemini")


def _begun(index: int, *pieces: str) -> list[RunEvent]:
    deltas = [TextDelta(index=index, text=piece) for piece in pieces]
    return [ItemAdded(index=index, item=MessageItem(role="assistant", id=f"msg_{index}")), *deltas]


def _whole(index: int, *pieces: str) -> list[RunEvent]:
    item = MessageItem(role="assistant", id=f"msg_{index}", content=(TextPart(text="".join(pieces)),))
    return [*_begun(index, *pieces), ItemDone(index=index, item=item)]


def _encoder(protocol: ProtocolName, *, stream: bool = True) -> Encoder:
    return PROTOCOLS[protocol].encoder(
        Request(protocol=protocol, model="m", surface=Surface(stream=stream)), RunIds("run_1")
    )


async def _told(telling: OneRun | MendedRun | NumberedRun, *events: RunEvent) -> list[bytes]:
    """Feed the events as a reply does."""
    frames: list[bytes] = []
    for number, event in enumerate(events, 1):
        numbered = Numbered(event=event, seq=number)
        if isinstance(event, RoundBroken):
            frames += await telling.meet_break(numbered)
        frames += telling.feed(numbered)
    return frames


def test_ids_of_a_run_are_the_same_whenever_it_is_told() -> None:
    """Another run has others."""
    first, again, other = RunIds("run_1"), RunIds("run_1"), RunIds("run_2")
    drawn = [first.new("msg"), first.new("msg")]
    assert drawn == [again.new("msg"), again.new("msg")]
    assert len({*drawn, other.new("msg")}) == 3
    assert all(each.startswith("msg_") for each in drawn)


def test_frames_that_the_client_has_are_left_out() -> None:
    """Also in the middle of what one event gave."""
    frames = Frames(after=3)
    assert [frames.take([b"1", b"2"]), frames.missing] == [[], 1]
    assert [frames.take([b"3", b"4"]), frames.missing, frames.count] == [[b"4"], 0, 4]


def test_frames_are_numbered_where_that_is_wanted() -> None:
    """From one, or from where the protocol counts."""
    assert Frames(shows_numbers=True).take([b"a", b"b"]) == [b"id: 1\na", b"id: 2\nb"]
    frames = Frames(after=2, first=0, shows_numbers=True)
    assert [frames.take([b"a"]), frames.take([b"b", b"c"])] == [[], [b"id: 2\nc"]]


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
async def test_a_run_told_from_the_middle_is_the_rest_of_it(protocol: ProtocolName) -> None:
    """Whatever the frame."""
    events = [STARTED, ROUND, *_whole(0, "Hel", "lo"), COMPLETED]
    whole = await _told(OneRun(_encoder(protocol)), *events)
    for after in range(len(whole) + 2):
        assert await _told(OneRun(_encoder(protocol), None, Frames(after=after)), *events) == whole[after:]


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
async def test_keeping_a_connection_alive_changes_no_number(protocol: ProtocolName) -> None:
    """Some clients hear more of it than others; all have the same frames."""
    plain = [STARTED, ROUND, *_whole(0, "Hel", "lo"), COMPLETED]
    noisy = [each for event in plain[:-1] for each in (event, KeptAlive())] + [COMPLETED]

    async def numbers(events: list[RunEvent]) -> list[bytes]:
        frames = await _told(OneRun(_encoder(protocol), None, Frames(shows_numbers=True)), *events[:1], *events[2:])
        return [frame.partition(b"\n")[0] for frame in frames if frame.startswith(b"id: ")]

    assert await numbers(noisy) == await numbers(plain)


def test_a_client_that_catches_up_needs_no_keep_alive() -> None:
    """What it would repeat has not been told to this connection yet."""
    telling = OneRun(_encoder("responses"), None, Frames(after=9))
    telling.feed(Numbered(event=STARTED))
    assert telling.feed(Numbered(event=KeptAlive())) == []


@pytest.mark.parametrize("protocol", MENDED)
async def test_a_stream_goes_on_after_a_break(protocol: ProtocolName) -> None:
    """The client reads the answer once."""
    events = [STARTED, ROUND, *_begun(0, "Hel"), BROKEN, ROUND, *_whole(1, "Hell", "o!"), COMPLETED]
    frames = await _told(MendedRun(_encoder(protocol)), *events)
    body = b"".join(frames)
    assert [b"Hel" in body, b'"lo!"' in body or b'"l"' in body, DIVERGED.encode() in body] == [True, True, False]


@pytest.mark.parametrize("protocol", MENDED)
async def test_a_client_that_saw_more_than_is_known_gets_an_error(protocol: ProtocolName) -> None:
    """What it has read of the broken part cannot be compared with anything."""
    events = [STARTED, ROUND, *_begun(0, "Hel"), BROKEN, ROUND, *_whole(1, "Hello"), COMPLETED]
    telling = MendedRun(_encoder(protocol), Frames(after=50))
    body = b"".join(await _told(telling, *events))
    assert b"/treadle/v1/runs/run_1/events" in body
    assert b"Hello" not in body
    assert telling.ended is not None
    assert telling.ended.status == "failed"


@pytest.mark.parametrize("protocol", MENDED)
async def test_what_is_told_in_one_piece_leaves_out_what_was_broken(protocol: ProtocolName) -> None:
    """Nobody has seen it, so another answer is as good; earlier rounds stay."""
    first = [STARTED, ROUND, *_whole(0, "One.")]
    second = RoundStarted(round=2, fingerprint="g")
    telling = FoldedRun(lambda: _encoder(protocol, stream=False))
    events = [*first, second, *_begun(1, "Bro"), RoundBroken(round=2), second, *_whole(2, "Two."), COMPLETED]
    assert await _told(telling, *events) == []
    plain = FoldedRun(lambda: _encoder(protocol, stream=False))
    await _told(plain, *first, second, *_whole(2, "Two."), COMPLETED)
    assert telling.body() == plain.body()
    assert telling.ended == COMPLETED


@pytest.mark.parametrize("protocol", MENDED)
async def test_a_break_in_a_later_round_repeats_nothing_of_the_rounds_before(protocol: ProtocolName) -> None:
    """What a client has read of the broken round alone is compared; nothing is told twice."""
    first = [STARTED, ROUND, *_whole(0, "One.")]
    second = RoundStarted(round=2, fingerprint="g")
    events = [*first, second, *_begun(1, "Tw"), RoundBroken(round=2), second, *_whole(2, "T", "wo."), COMPLETED]
    body = b"".join(await _told(MendedRun(_encoder(protocol)), *events))
    assert [body.count(b"One."), body.count(b'Tw"'), body.count(b'"o."'), DIVERGED.encode() in body] == [1, 1, 1, False]


class Heard:
    """An encoder that remembers what it was fed."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def feed(self, event: RunEvent) -> list[bytes]:
        self.events.append(event)
        return []

    def body(self) -> bytes:
        return b"{}"


@pytest.mark.parametrize("waits", [BROKEN, COMPLETED], ids=["a break", "the end"])
@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
async def test_what_has_to_wait_is_not_heard_at_once_and_nothing_before_it(
    protocol: ProtocolName, waits: RunEvent
) -> None:
    """Whoever hears a batch at once has all of it, or reads all of it later: so told, the frames are the same."""
    kind = NumberedRun if protocol == "responses" else MendedRun
    events: list[RunEvent] = [STARTED, ROUND, *_begun(0, "a")]
    expected = await _told(kind(_encoder(protocol)), *events, waits)
    telling = kind(_encoder(protocol))
    batch = [Numbered(event=event, seq=number) for number, event in enumerate([*events, waits], 1)]
    assert telling.hear(batch) is None
    frames: list[bytes] = []
    for numbered in batch[:-1]:
        frames += telling.hear([numbered]) or []
    assert telling.hear(batch[-1:]) is None
    frames += await telling.meet_break(batch[-1]) if waits is BROKEN else []
    assert [*frames, *telling.tell(batch[-1:])] == expected


@pytest.mark.parametrize("protocol", MENDED)
async def test_a_piece_that_is_heard_alone_after_a_break_is_mended(protocol: ProtocolName) -> None:
    """What the client has been told is left out of it, as of any batch."""
    telling = MendedRun(_encoder(protocol))
    await _told(telling, STARTED, ROUND, *_begun(0, "a", "b"), BROKEN, ROUND, *_begun(0))
    repeated = Numbered(event=TextDelta(index=0, text="a"), seq=9)
    assert telling.hear([repeated]) == []


def test_an_answer_in_one_piece_hears_all_but_its_end() -> None:
    """Also a batch of nothing, and a break, since nobody has seen what was broken off."""
    telling = FoldedRun(lambda: _encoder("chat", stream=False))
    heard = [STARTED, ROUND, BROKEN]
    assert telling.hear([]) == []
    assert telling.hear([Numbered(event=event) for event in heard]) == []
    assert telling.hear([Numbered(event=ROUND), Numbered(event=COMPLETED)]) is None
    assert (telling.events, telling.ended) == (heard, None)


def _heard(*events: RunEvent) -> list[RunEvent]:
    """Return what the encoder of an answer in one piece is told of a run."""
    encoder = Heard()
    telling = FoldedRun(lambda: encoder)
    for event in events:
        telling.feed(Numbered(event=event))
    assert encoder.events == []
    telling.body()
    return encoder.events


def test_pieces_of_an_item_that_is_whole_are_not_told() -> None:
    """An answer in one piece is made of the items; nothing is encoded before it has ended."""
    call = CallItem(call_id="call_1", name="f", arguments="{}")
    asked = [ItemAdded(index=1, item=call), ArgumentsDelta(index=1, text="{}"), ItemDone(index=1, item=call)]
    whole = _whole(0, "Hel", "lo")
    events = [STARTED, ROUND, *whole, *asked, COMPLETED]
    assert _heard(*events) == [STARTED, ROUND, whole[0], whole[-1], asked[0], asked[-1], COMPLETED]


def test_pieces_that_an_item_may_not_have_are_told() -> None:
    """Those of an item that was cut off, of items that overlap, and those that say more than text."""
    cut = [STARTED, ROUND, *_begun(0, "Hel", "lo"), COMPLETED]
    assert _heard(*cut) == cut
    (one, *_), (other, *_) = _begun(0, "x"), _begun(1, "y")
    ends = [_whole(0, "a")[-1], _whole(1, "b")[-1]]
    texts = [TextDelta(index=0, text="a"), TextDelta(index=1, text="b")]
    assert _heard(STARTED, one, other, *texts, *ends) == [STARTED, one, other, *texts, *ends]
    likely = TextDelta(index=0, text="a", logprobs=msgspec.Raw(b'[{"token":"a"}]'))
    assert _heard(STARTED, one, likely, texts[0], ends[0]) == [STARTED, one, likely, ends[0]]


class Pins:
    """Remembers the first number of each entry, as a store does."""

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}

    async def pin(self, seq: int, number: int) -> int:
        return self.kept.setdefault(seq, number)


def _numbers(frames: list[bytes]) -> list[int]:
    marks = (frame.partition(b'"sequence_number":')[2] for frame in frames)
    return [int(mark.partition(b",")[0].partition(b"}")[0]) for mark in marks]


BREAK = [STARTED, ROUND, *_begun(0, "Hel"), BROKEN, ROUND, *_whole(1, "Hi"), COMPLETED]


async def test_numbers_go_on_from_where_the_first_client_stood() -> None:
    """It saw more than is known; the frames after the break follow its number, for everybody."""
    pins = Pins()
    first = await _told(NumberedRun(_encoder("responses"), pin=pins.pin, frames=Frames(after=9)), *BREAK)
    assert _numbers(first) == list(range(9, 9 + len(first)))
    later = await _told(NumberedRun(_encoder("responses"), pin=pins.pin, frames=Frames(after=12)), *BREAK)
    assert later == first[3:]
    whole = await _told(NumberedRun(_encoder("responses"), pin=pins.pin), *BREAK)
    assert whole[-len(first) :] == first


async def test_numbers_stay_dense_for_a_client_that_saw_less() -> None:
    """Nothing is lost, so nothing is skipped."""
    pins = Pins()
    frames = await _told(NumberedRun(_encoder("responses"), pin=pins.pin, frames=Frames(after=2)), *BREAK)
    assert _numbers(frames) == list(range(2, 2 + len(frames)))


async def test_an_answer_in_one_piece_settles_no_number() -> None:
    """It has no frames: whoever streams the run later counts on from what was told before the break."""
    pins = Pins()
    assert await _told(NumberedRun(_encoder("responses", stream=False), pin=pins.pin), *BREAK) == []
    frames = await _told(NumberedRun(_encoder("responses"), pin=pins.pin), *BREAK)
    assert _numbers(frames) == list(range(len(frames)))


async def test_a_broken_item_is_closed_incomplete_and_a_new_one_opened() -> None:
    """Responses can say so; the broken item stays in the output, as clients want every item they saw."""
    telling = NumberedRun(_encoder("responses"), pin=Pins().pin)
    body = b"".join(await _told(telling, *BREAK)).decode()
    assert body.count("event: response.output_item.done") == body.count("event: response.output_item.added") == 2
    assert '"status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Hel"' in body
    assert body.count("event: response.completed") == 1
