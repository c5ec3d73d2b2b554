"""Runs told and told again: frames are counted, and a break is met as each protocol can."""

import msgspec
import pytest

from gateway.apis import text_of
from treadle.core.errors import ErrorInfo, ProtocolError
from treadle.core.events import (
    NUMBER_STEP,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    KeptAlive,
    Numbered,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRecovered,
    RunStarted,
    Status,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import AnyItem, CallItem, MessageItem, OpaqueItem, ResultItem, TextPart
from treadle.core.request import Protocol as ProtocolName
from treadle.core.request import Request, Surface
from treadle.protocols.codec_interfaces import Encoder
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.stream_deduplication import DIVERGED
from treadle.server.delivery.replay_encoders import AppendOnlyWriter, FoldedWriter, RunIds, RunWriter
from treadle.server.delivery.stream_event_ids import FrameNumbers, Position, read_position

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


def _told(telling: RunWriter | FoldedWriter, *events: RunEvent) -> list[bytes]:
    """Feed the events as a reply does."""
    return telling.encode([Numbered(event=event, seq=number) for number, event in enumerate(events, 1)])


def _after(number: int, first: int = 1) -> FrameNumbers:
    """Return the frames of a client that names its place by a plain number."""
    return FrameNumbers(position=Position(number), first=first)


def _telling(protocol: ProtocolName, frames: FrameNumbers | None = None) -> AppendOnlyWriter:
    return AppendOnlyWriter(_encoder(protocol), frames, closes=protocol == "responses")


def test_ids_of_a_run_are_the_same_whenever_it_is_told() -> None:
    """Another run has others."""
    first, again, other = RunIds("run_1"), RunIds("run_1"), RunIds("run_2")
    drawn = [first.new("msg"), first.new("msg")]
    assert drawn == [again.new("msg"), again.new("msg")]
    assert len({*drawn, other.new("msg")}) == 3
    assert all(each.startswith("msg_") for each in drawn)


def test_frames_that_the_client_has_are_left_out() -> None:
    """Also in the middle of what one event gave."""
    frames = _after(3)
    assert [frames.take([b"1", b"2"]), frames.missing] == [[], 1]
    assert [frames.take([b"3", b"4"]), frames.missing, frames.number] == [[b"4"], 0, 5]


def test_frames_are_named_where_that_is_wanted() -> None:
    """From one, or from where the protocol counts; the name also says how much was shown."""
    ids = [
        frame.partition(b"\n")[0]
        for frame in FrameNumbers(shows_ids=True).take([b"a", b"b"], TextDelta(index=0, text="Hi"))
    ]
    assert ids == [b"id: 1.0.d202ef8d", b"id: 2.2.f38fc5e3"]
    frames = FrameNumbers(position=Position(1), first=0, shows_ids=True)
    assert [frames.take([b"a"]), frames.take([b"b", b"c"])] == [[], [b"id: 2.0.ff41d912\nc"]]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1.5.xyz", "9" * 17, str(2**53 + 1), "1.2.deadbeef0"])
def test_what_is_no_id_of_a_frame_is_refused(text: str) -> None:
    """The header is named."""
    with pytest.raises(ProtocolError, match="Last-Event-ID"):
        read_position(text)


def test_an_id_is_a_number_or_says_what_was_shown() -> None:
    """A plain number is what older clients have."""
    assert read_position("51") == Position(51)
    assert read_position("51.312.0a0b0c0d") == Position(51, 312, 0x0A0B0C0D)


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
def test_a_run_told_from_the_middle_is_the_rest_of_it(protocol: ProtocolName) -> None:
    """Whatever the frame."""
    events = [STARTED, ROUND, *_whole(0, "Hel", "lo"), COMPLETED]
    whole = _told(RunWriter(_encoder(protocol)), *events)
    for after in range(len(whole) + 2):
        assert (
            _told(
                RunWriter(
                    _encoder(protocol), None, _after(after - (protocol == "responses"), int(protocol != "responses"))
                ),
                *events,
            )
            == whole[after:]
        )


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
def test_keeping_a_connection_alive_changes_no_number(protocol: ProtocolName) -> None:
    """Some clients hear more of it than others; all have the same frames."""
    plain = [STARTED, ROUND, *_whole(0, "Hel", "lo"), COMPLETED]
    noisy = [each for event in plain[:-1] for each in (event, KeptAlive())] + [COMPLETED]

    def numbers(events: list[RunEvent]) -> list[bytes]:
        frames = _told(RunWriter(_encoder(protocol), None, FrameNumbers(shows_ids=True)), *events[:1], *events[2:])
        return [frame.partition(b"\n")[0] for frame in frames if frame.startswith(b"id: ")]

    assert numbers(noisy) == numbers(plain)


def test_a_client_that_catches_up_needs_no_keep_alive() -> None:
    """What it would repeat has not been told to this connection yet."""
    telling = RunWriter(_encoder("responses"), None, _after(9, 0))
    telling.feed(Numbered(event=STARTED))
    assert telling.feed(Numbered(event=KeptAlive())) == []


@pytest.mark.parametrize("protocol", MENDED)
def test_a_stream_goes_on_after_a_break(protocol: ProtocolName) -> None:
    """The client reads the answer once."""
    events = [STARTED, ROUND, *_begun(0, "Hel"), BROKEN, ROUND, *_whole(1, "Hell", "o!"), COMPLETED]
    frames = _told(AppendOnlyWriter(_encoder(protocol)), *events)
    body = b"".join(frames)
    assert [b"Hel" in body, b'"lo!"' in body or b'"l"' in body, DIVERGED.encode() in body] == [True, True, False]


@pytest.mark.parametrize("protocol", MENDED)
def test_a_client_that_saw_more_than_is_known_gets_an_error(protocol: ProtocolName) -> None:
    """What it has read of the broken part cannot be compared with anything."""
    events = [STARTED, ROUND, *_begun(0, "Hel"), BROKEN, ROUND, *_whole(1, "Hello"), COMPLETED]
    telling = AppendOnlyWriter(_encoder(protocol), _after(50))
    body = b"".join(_told(telling, *events))
    assert b"/treadle/v1/runs/run_1/events" in body
    assert b"Hello" not in body
    assert telling.ended is not None
    assert telling.ended.status == "failed"


@pytest.mark.parametrize("protocol", MENDED)
def test_what_is_told_in_one_piece_leaves_out_what_was_broken(protocol: ProtocolName) -> None:
    """Nobody has seen it, so another answer is as good; earlier rounds stay."""
    first = [STARTED, ROUND, *_whole(0, "One.")]
    second = RoundStarted(round=2, fingerprint="g")
    telling = FoldedWriter(lambda: _encoder(protocol, stream=False))
    events = [*first, second, *_begun(1, "Bro"), RoundBroken(round=2), second, *_whole(2, "Two."), COMPLETED]
    assert _told(telling, *events) == []
    plain = FoldedWriter(lambda: _encoder(protocol, stream=False))
    _told(plain, *first, second, *_whole(2, "Two."), COMPLETED)
    assert telling.body() == plain.body()
    assert telling.ended == COMPLETED


@pytest.mark.parametrize("protocol", MENDED)
def test_a_break_in_a_later_round_repeats_nothing_of_the_rounds_before(protocol: ProtocolName) -> None:
    """What a client has read of the broken round alone is compared; nothing is told twice."""
    first = [STARTED, ROUND, *_whole(0, "One.")]
    second = RoundStarted(round=2, fingerprint="g")
    events = [*first, second, *_begun(1, "Tw"), RoundBroken(round=2), second, *_whole(2, "T", "wo."), COMPLETED]
    body = b"".join(_told(AppendOnlyWriter(_encoder(protocol)), *events))
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


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
def test_the_end_is_not_heard_at_once_and_nothing_before_it(protocol: ProtocolName) -> None:
    """Whoever hears a batch at once has all of it, or reads all of it later: so told, the frames are the same."""
    events: list[RunEvent] = [STARTED, ROUND, *_begun(0, "a")]
    expected = _told(_telling(protocol), *events, COMPLETED)
    telling = _telling(protocol)
    batch = [Numbered(event=event, seq=number) for number, event in enumerate([*events, COMPLETED], 1)]
    assert telling.try_encode_now(batch) is None
    frames: list[bytes] = []
    for numbered in batch[:-1]:
        frames += telling.try_encode_now([numbered]) or []
    assert telling.try_encode_now(batch[-1:]) is None
    assert [*frames, *telling.encode(batch[-1:])] == expected


@pytest.mark.parametrize("protocol", MENDED)
def test_a_piece_that_is_heard_alone_after_a_break_is_mended(protocol: ProtocolName) -> None:
    """What the client has been told is left out of it, as of any batch."""
    telling = AppendOnlyWriter(_encoder(protocol))
    _told(telling, STARTED, ROUND, *_begun(0, "a", "b"), BROKEN, ROUND, *_begun(0))
    repeated = Numbered(event=TextDelta(index=0, text="a"), seq=9)
    assert telling.try_encode_now([repeated]) == []


def test_an_answer_in_one_piece_hears_all_but_its_end() -> None:
    """Also a batch of nothing, and a break, since nobody has seen what was broken off."""
    telling = FoldedWriter(lambda: _encoder("chat", stream=False))
    heard = [STARTED, ROUND, BROKEN]
    assert telling.try_encode_now([]) == []
    assert telling.try_encode_now([Numbered(event=event) for event in heard]) == []
    assert telling.try_encode_now([Numbered(event=ROUND), Numbered(event=COMPLETED)]) is None
    assert (telling.events, telling.ended) == (heard, None)


def _heard(*events: RunEvent) -> list[RunEvent]:
    """Return what the encoder of an answer in one piece is told of a run."""
    encoder = Heard()
    telling = FoldedWriter(lambda: encoder)
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


def _numbers(frames: list[bytes]) -> list[int]:
    marks = (frame.partition(b'"sequence_number":')[2] for frame in frames)
    return [int(mark.partition(b",")[0].partition(b"}")[0]) for mark in marks]


BREAK = [STARTED, ROUND, *_begun(0, "Hel"), BROKEN, ROUND, *_whole(1, "Hi"), COMPLETED]
RECOVERED = [STARTED, ROUND, *_begun(0, "Hel"), RunRecovered(), BROKEN, ROUND, *_whole(1, "Hell", "o!"), COMPLETED]


def test_the_numbers_of_a_recovered_response_leap() -> None:
    """A client that saw more than the journal has numbers that no other event may get."""
    numbers = _numbers(_told(_telling("responses"), *RECOVERED))
    known = 5  # created, in_progress, item added, part added, "Hel"
    assert numbers == [*range(known), *range(NUMBER_STEP + known, NUMBER_STEP + len(numbers))]


def test_a_response_that_answers_the_same_goes_on_in_its_item() -> None:
    """One item, and its text once."""
    body = b"".join(_told(_telling("responses"), *RECOVERED)).decode()
    assert body.count("event: response.output_item.done") == body.count("event: response.output_item.added") == 1
    deltas = [part.partition('"')[0] for part in body.split('"delta":"')[1:]]
    assert "".join(deltas) == "Hello!"


def test_a_broken_item_is_closed_incomplete_and_a_new_one_opened() -> None:
    """Responses can say so; the broken item stays in the output, as clients want every item they saw."""
    body = b"".join(_told(_telling("responses"), *BREAK)).decode()
    assert body.count("event: response.output_item.done") == body.count("event: response.output_item.added") == 2
    assert '"status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Hel"' in body
    assert body.count("event: response.completed") == 1


def test_a_response_in_one_piece_is_what_its_stream_ends_with() -> None:
    """Whether the repeated call said the same or not."""
    for events in (BREAK, RECOVERED):
        streamed = _telling("responses")
        last = _told(streamed, *events)[-1].decode()
        folded = AppendOnlyWriter(_encoder("responses", stream=False), closes=True)
        assert _told(folded, *events) == []
        assert folded.body().decode() in last


DIFFERENTLY = b"the answer went on differently"
TEXT = "Hello, world: äöü."


def _seen(protocol: ProtocolName, size: int) -> list[bytes]:
    """Return the frames that a client got of an answer in pieces of that size before its process died."""
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    frames = FrameNumbers(first=int(protocol != "responses"), shows_ids=True)
    return _told(_telling(protocol, frames), STARTED, ROUND, *_begun(0, *pieces))


def _id_of(frame: bytes) -> Position:
    return read_position(frame.partition(b"\n")[0].removeprefix(b"id: ").decode())


def _text_of(protocol: ProtocolName, frames: list[bytes]) -> str:
    plain = [frame.partition(b"\n")[2] if frame.startswith(b"id: ") else frame for frame in frames]
    return text_of(protocol, b"".join(plain))


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 2), (5, 50)])
@pytest.mark.parametrize("known", [0, 1, 2])
def test_a_client_that_saw_more_than_is_known_gets_exactly_the_rest(
    protocol: ProtocolName, sizes: tuple[int, int], known: int
) -> None:
    """From whatever frame, however the repeated answer is cut: no text twice, none left out, and it goes on again."""
    before, after = sizes
    kept = [TEXT[at : at + before] for at in range(0, len(TEXT), before)][:known]
    again = [TEXT[at : at + after] for at in range(0, len(TEXT), after)]
    told = [STARTED, ROUND, *_begun(0, *kept), RunRecovered(), BROKEN, ROUND, *_whole(0, *again), COMPLETED]
    whole = _told(_telling(protocol, FrameNumbers(first=int(protocol != "responses"), shows_ids=True)), *told)
    seen = _seen(protocol, before)
    for at, frame in enumerate(seen, 1):
        frames = FrameNumbers(position=_id_of(frame), first=int(protocol != "responses"), shows_ids=True)
        rest = _told(_telling(protocol, frames), *told)
        assert _text_of(protocol, [*seen[:at], *rest]) == TEXT, frame
        assert DIFFERENTLY not in b"".join(rest)
        # Where the stream goes on is a place like any other.
        assert rest[1:] == whole[len(whole) - len(rest) + 1 :]
        ids = [_id_of(each).number for each in [*seen[:at], *rest]]
        assert ids == sorted(set(ids))


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
def test_a_client_that_saw_more_than_is_known_is_told_if_the_answer_differs(protocol: ProtocolName) -> None:
    """At the first character that it has and the answer has not; nothing of the other answer is sent."""
    other = TEXT[:4] + "X" + TEXT[5:]
    told = [STARTED, ROUND, *_begun(0, *TEXT[:2]), RunRecovered(), BROKEN, ROUND, *_whole(0, *other), COMPLETED]
    seen = _seen(protocol, 1)
    for at, frame in enumerate(seen, 1):
        frames = FrameNumbers(position=_id_of(frame), first=int(protocol != "responses"), shows_ids=True)
        telling = _telling(protocol, frames)
        rest = _told(telling, *told)
        has_differed = len(_text_of(protocol, seen[:at])) > 4
        assert (DIFFERENTLY in b"".join(rest)) == has_differed
        assert telling.ended is not None
        assert telling.ended.status == ("failed" if has_differed else "completed")
        if not has_differed:
            assert _text_of(protocol, [*seen[:at], *rest]) == other


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
@pytest.mark.parametrize("status", ["failed", "cancelled", "completed"])
def test_a_run_that_ends_before_the_clients_place_ends_its_stream(protocol: ProtocolName, status: Status) -> None:
    """As it ended, if that was badly; an answer that is shorter than what was seen is another one."""
    told = [STARTED, ROUND, *_begun(0, "He"), RunRecovered(), BROKEN, ROUND, *_begun(0, "Hel")]
    frames = FrameNumbers(position=_id_of(_seen(protocol, 1)[-1]), first=int(protocol != "responses"), shows_ids=True)
    telling = _telling(protocol, frames)
    rest = _told(telling, *told, RunEnded(status=status, error=None))
    assert telling.ended is not None
    assert telling.ended.status == ("failed" if status == "completed" else status)
    assert _text_of(protocol, rest) == ""
    assert (DIFFERENTLY in b"".join(rest)) == (status == "completed")


def test_an_end_that_does_not_stand_has_no_number_of_its_own() -> None:
    """Another process writes the real one: a client that comes back with its last number misses nothing."""
    lost = Numbered(event=RunEnded(status="failed", ended_at=2.0), stands=False)
    telling = _telling("chat", FrameNumbers(shows_ids=True))
    _told(telling, STARTED, ROUND, *_begun(0, "Hel"))
    assert all(not frame.startswith(b"id: ") for frame in telling.feed(lost))
    response = _telling("responses")
    frames = _told(response, STARTED, ROUND, *_begun(0, "Hel"))
    ended = response.feed(lost)
    assert _numbers(ended) == [_numbers(frames)[-1]] * len(ended)


def test_a_call_with_another_id_is_another_answer() -> None:
    """The client would answer a call that the conversation does not have."""

    def call(call_id: str) -> list[RunEvent]:
        item = CallItem(call_id=call_id, name="pay")
        return [
            ItemAdded(index=0, item=item),
            ArgumentsDelta(index=0, text='{"a":'),
            ArgumentsDelta(index=0, text="1}"),
        ]

    for protocol in ("chat", "messages"):
        seen = _told(_telling(protocol, FrameNumbers(shows_ids=True)), STARTED, ROUND, *call("call_1"))
        for call_id in ("call_1", "call_2"):
            done = ItemDone(index=0, item=CallItem(call_id=call_id, name="pay", arguments='{"a":1}'))
            end = RunEnded(status="requires_action", stop="calls")
            told = [STARTED, ROUND, RunRecovered(), BROKEN, ROUND, *call(call_id), done, end]
            rest = _told(_telling(protocol, FrameNumbers(position=_id_of(seen[-1]), shows_ids=True)), *told)
            assert (DIFFERENTLY in b"".join(rest)) == (call_id == "call_2")


@pytest.mark.parametrize("protocol", [*MENDED, "responses"])
def test_a_failed_end_reaches_a_client_that_names_more_than_the_run_had(protocol: ProtocolName) -> None:
    """Else its stream would end without a word, as a finished answer does; a completed run just ends."""
    failed = RunEnded(status="failed", ended_at=2.0, error=ErrorInfo(code="run_not_stored", message="It is gone."))
    for end, is_told in ((failed, True), (COMPLETED, False)):
        frames = FrameNumbers(position=Position(number=900), first=int(protocol != "responses"), shows_ids=True)
        assert (b"It is gone." in b"".join(_told(_telling(protocol, frames), STARTED, end))) == is_told
        assert is_told or b"error" not in b"".join(_told(_telling(protocol, frames), STARTED, end))


def test_a_reader_in_the_background_goes_on_behind_a_recovery_by_its_number() -> None:
    """It was shown only what the journal has, so that its number is still true: nothing is compared."""
    told = [STARTED, ROUND, *_begun(0, "Hel"), RunRecovered(), BROKEN, ROUND, *_whole(0, "Hel", "lo"), COMPLETED]
    whole = _told(AppendOnlyWriter(_encoder("responses"), closes=True, step=0), *told)
    for seen in range(1, len(whole)):
        frames = FrameNumbers(position=Position(number=seen - 1), first=0, shows_ids=False)
        rest = _told(AppendOnlyWriter(_encoder("responses"), frames, closes=True, step=0), *told)
        assert rest == whole[seen:], seen


@pytest.mark.parametrize("kind", ["client call", "opaque"])
def test_the_end_of_an_item_that_the_next_one_lets_out_shows_nothing_of_the_next(kind: str) -> None:
    """Responses holds an item's end until there is a next one, and that one until calls before it have run: the journal
    may not have the next one, and lets the end out by something else."""
    wipe = CallItem(call_id="call_1", name="wipe", side="server")
    result = ResultItem(call_id="call_1", name="wipe", output=(TextPart(text="Not run."),), is_error=True)
    later: AnyItem = CallItem(call_id="call_2", name="theirs")
    if kind == "opaque":
        later = OpaqueItem(protocol="responses", raw=msgspec.Raw(b'{"type":"odd_item","id":"odd_1"}'))
    begun = [STARTED, ROUND, *_whole(0, "Well."), ItemAdded(index=1, item=wipe), ItemDone(index=1, item=wipe)]
    seen = _told(_telling("responses", FrameNumbers(first=0, shows_ids=True)), *begun, ItemAdded(index=2, item=later))
    assert b"output_item.done" in seen[-1]
    ran = [ToolStarted(index=1, call=wipe), ToolFinished(index=1, call=wipe, result=result)]
    told = [*begun, RunRecovered(), *ran, BROKEN, ROUND, *_whole(3, "Well."), COMPLETED]
    rest = _told(_telling("responses", FrameNumbers(position=_id_of(seen[-1]), first=0, shows_ids=True)), *told)
    assert DIFFERENTLY not in b"".join(rest)
    assert b"response.completed" in rest[-1]
