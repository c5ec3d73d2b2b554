"""A text that goes on alone takes a short way, and nobody behind it can tell."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream.answers import check_contract, decode, merged
from stream.shapes import DONE, USAGE, call, calls, chunk, finish, frame, text
from treadle.core.events import Failed, ItemDone, ModelEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import MessageItem, TextPart
from treadle.core.plan import Plan
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.chat import Decoder
from treadle.protocols.text_calls.text_call_recovery import RepairRules, scanner_of
from treadle.protocols.translation.adapt_plan import adapt
from treadle.protocols.translation.restore_events import RestoringDecoder
from treadle.protocols.translation.upstream_features import Traits

TOOL = ToolSpec(name="ring_bell")
CALL = '<tool_call>{"name": "ring_bell", "arguments": {"times": 2}}</tool_call>'


class Counting(Decoder):
    """A decoder that counts what comes the long way."""

    fed = 0

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Count and decode."""
        self.fed += 1
        return super().feed(data)


def staged(tools: tuple[ToolSpec, ...] = (TOOL,), **options: Any) -> tuple[RestoringDecoder, Counting]:
    """Return a decoder with all stages behind it."""
    plan = Plan(model="m", items=(), tools=tools)
    decoder = Counting(CountingIds(), **options)
    return RestoringDecoder(decoder, adapt(plan, Traits()).restorer, scanner_of(plan, RepairRules())), decoder


def test_only_what_begins_and_what_ends_a_text_goes_the_long_way() -> None:
    """What is between comes out as the same events, in the feed that completes it."""
    for tools in ((TOOL,), ()):
        decoder, inner = staged(tools)
        decoder.feed(frame(chunk({"role": "assistant", "content": ""})))
        decoder.feed(frame(text("a")))
        decoder.feed(frame(text("b")))
        before = inner.fed
        assert decoder.feed(frame(text(" c"))) == [TextDelta(index=0, text=" c")]
        assert decoder.feed(frame(text("é"))) == [TextDelta(index=0, text="é")]
        assert inner.fed == before
        ended = decoder.feed(frame(finish("stop"))) + decoder.feed(frame(DONE))
        assert isinstance(ended[0], ItemDone)
        assert ended[0].item == MessageItem(id="msg_0001", role="assistant", content=(TextPart(text="ab cé"),))


def test_a_text_with_lines_flows_too() -> None:
    """Once something was looked at closer and let pass, what follows flows again."""
    decoder, inner = staged()
    for piece in ("a", " b", "\n", "c d", " e"):
        decoder.feed(frame(text(piece)))
    before = inner.fed
    assert decoder.feed(frame(text(" x"))) == [TextDelta(index=0, text=" x")]
    assert inner.fed == before
    assert decoder.feed(frame(text(" <"))) == [TextDelta(index=0, text=" ")]
    assert inner.fed == before + 1


def test_a_text_that_flows_over_the_bound_is_a_failure() -> None:
    """The bound itself is allowed, and counts bytes."""
    decoder, _ = staged(text_bytes_max=6)
    for piece in ("a", "b", "éé"):
        assert [type(event) for event in decoder.feed(frame(text(piece)))][-1] is TextDelta
    (failed,) = decoder.feed(frame(text("c")))
    assert isinstance(failed, Failed)
    assert decoder.feed(frame(text("d"))) == decoder.finish() == []


_WORDS = ["a", " b", "é", "\n", "`", "```", "<", "<tool", CALL, "func", "- ", ": "]
_FRAMES = [
    *(frame(text(word)) for word in _WORDS),
    *(frame(value) for value in (text(""), chunk({"refusal": "no"}), chunk({"reasoning": "hm"}), finish("stop"), DONE)),
    *(frame(value) for value in (calls(call(0, "a", "ring_bell", "{}")), chunk({"content": "u"}, usage=USAGE))),
    frame(text("?")).replace(b"?", b"\\ud83d"),
    frame(text("?")).replace(b"?", b"\xff"),
    frame(text("a")).replace(b"\n", b"\r\n"),
    b": ping\n\n",
    b"data: ",
]


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(st.sampled_from(_WORDS[:3]), max_size=4), st.lists(st.sampled_from(_FRAMES), max_size=9), st.booleans())
def test_a_stream_in_frames_is_what_it_is_in_any_other_pieces(first: list[str], then: list[bytes], short: bool) -> None:
    """Frame by frame, all at once, or byte by byte, where nothing ever flows."""
    frames = [*(frame(text(word)) for word in first), *then, frame(finish("stop")), frame(DONE)]
    options: dict[str, Any] = {"text_bytes_max": 7 if short else 1_000_000}
    alone, body = staged(**options)[0], b"".join(frames)
    events = [event for each in frames for event in alone.feed(each)] + alone.finish()
    whole, bytewise = (merged(decode(staged(**options)[0], body, size)) for size in (len(body), 1))
    assert merged(events) == whole == bytewise
    check_contract(events)
