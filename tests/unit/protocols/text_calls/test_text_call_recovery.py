"""Calls written as text in the events of an answer: what leaves, in which order, and what never becomes a call."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import UpstreamError
from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    TextDelta,
)
from treadle.core.items import CallItem, MessageItem, ReasoningItem, ResultItem, TextPart, text_message, text_of
from treadle.core.plan import Plan
from treadle.core.tool_definitions import NONE, ToolSpec
from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner
from treadle.protocols.text_calls.schema_values import TextTools
from treadle.protocols.text_calls.text_call_recovery import (
    RepairRules,
    Scanner,
    chosen_dialects,
    mended_arguments,
    scanner_of,
)

BODY = '{"name": "ring_bell", "arguments": {"times": 2}}'
CALL = f"<tool_call>{BODY}</tool_call>"
TOOL = ToolSpec(name="ring_bell")


def plan(*items: Any, model: str = "m", **fields: Any) -> Plan:
    """Return a plan with one tool."""
    return Plan(**{"items": items, "model": model, "tools": (TOOL,), **fields})


def answer(text: str, *, stop: Stop = "done", size: int = 3, more: tuple[ModelEvent, ...] = ()) -> list[ModelEvent]:
    """Return the events of an answer of one message, cut in pieces."""
    deltas = [TextDelta(index=0, text=text[at : at + size]) for at in range(0, len(text), size)]
    item = MessageItem(id="msg_7", role="assistant", content=(TextPart(text=text),))
    added = ItemAdded(index=0, item=MessageItem(id="msg_7", role="assistant"))
    return [added, *deltas, ItemDone(index=0, item=item), *more, Finished(stop=stop, raw_stop="stop")]


def scan(events: list[ModelEvent], rules: RepairRules | None = None, **fields: Any) -> list[ModelEvent]:
    """Return what the stage makes of events."""
    items = fields.pop("items", ())
    scanner = Scanner(plan(*items, **fields), rules or RepairRules())
    return [own for event in events for own in scanner.feed(event)]


def calls(events: list[ModelEvent]) -> list[CallItem]:
    """Return the calls that ended."""
    return [event.item for event in events if isinstance(event, ItemDone) and isinstance(event.item, CallItem)]


def said(events: list[ModelEvent]) -> str:
    """Return the text of all deltas."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def messages(events: list[ModelEvent]) -> list[str]:
    """Return the text of the messages that ended."""
    dones = [event.item for event in events if isinstance(event, ItemDone)]
    return [text_of(item.content) for item in dones if isinstance(item, MessageItem)]


def codes(events: list[ModelEvent]) -> list[str]:
    """Return the codes of the notes."""
    return [event.note.code for event in events if isinstance(event, Noted)]


def test_a_call_in_text_becomes_a_call_that_keeps_what_was_written() -> None:
    """The text before it stays, the call follows, and the answer ends in calls."""
    events = scan(answer(f"On it. {CALL}"))
    assert messages(events) == ["On it. "]
    assert said(events) == "On it. "
    (call,) = calls(events)
    assert (call.name, call.arguments, call.origin, call.raw) == ("ring_bell", '{"times":2}', "recovered", CALL)
    assert events[-1] == Finished(stop="calls")
    assert [type(event) for event in events[-5:]] == [Noted, ItemAdded, ArgumentsDelta, ItemDone, Finished]


def test_ids_come_from_the_message_and_the_order() -> None:
    """The same answer gives the same ids, and no two calls share one."""
    first, again = (scan(answer(CALL + CALL)) for _ in range(2))
    assert [call.call_id for call in calls(first)] == ["call_7x1", "call_7x2"]
    assert [call.id for call in calls(first)] == ["fc_7x1", "fc_7x2"]
    assert first == again


def thinking(text: str, item_id: str) -> list[ModelEvent]:
    """Return the events of an answer that is nothing but reasoning."""
    deltas = [ReasoningDelta(index=0, text=text[at : at + 3]) for at in range(0, len(text), 3)]
    added = ItemAdded(index=0, item=ReasoningItem(id=item_id))
    return [added, *deltas, ItemDone(index=0, item=ReasoningItem(id=item_id, text=(text,))), Finished(stop="done")]


def test_ids_of_calls_in_thoughts_are_those_of_no_other_answer() -> None:
    """They come from the reasoning and the order: the same in a replay, and others in the next turn."""
    first, second = (calls(scan(thinking(CALL * 2, item_id), model="qwen3")) for item_id in ("rs_1", "rs_2"))
    assert [call.call_id for call in (*first, *second)] == ["call_1x1", "call_1x2", "call_2x1", "call_2x2"]
    assert [call.id for call in (*first, *second)] == ["fc_1x1", "fc_1x2", "fc_2x1", "fc_2x2"]


def test_text_behind_a_call_flows_and_stays_in_the_message() -> None:
    """Visible text is not held because a call stands before it."""
    events = scan(answer(f"a {CALL} b"))
    assert messages(events) == ["a b"] or messages(events) == ["a  b"]
    place = next(n for n, event in enumerate(events) if isinstance(event, ItemDone))
    assert said(events[:place]).split() == ["a", "b"]


def test_a_message_that_is_only_a_call_is_no_message() -> None:
    """Nothing visible is left, so that nothing is told of it."""
    events = scan(answer(f"\n{CALL}\n"))
    assert messages(events) == []
    assert len(calls(events)) == 1
    assert said(events) == ""


def test_text_without_a_call_passes_event_by_event() -> None:
    """What is no call is the very same events."""
    given = answer("Hello, a < b.\nNothing to call.", size=9)
    events = scan(given)
    assert said(events) == said(given)
    assert events[-2:] == given[-2:]
    assert events[0] == given[0]


@pytest.mark.parametrize("stop", ["length", "filtered"])
def test_an_answer_that_was_cut_calls_nothing(stop: Stop) -> None:
    """Its calls are text again, in deltas and in the message alike."""
    events = scan(answer(f"On it. {CALL}", stop=stop))
    assert calls(events) == []
    assert said(events) == f"On it. {CALL}"
    assert messages(events) == [f"On it. {CALL}"]
    assert codes(events) == ["call_not_recovered"]
    assert events[-1] == Finished(stop=stop, raw_stop="stop")


def test_a_message_that_was_only_a_call_comes_back_when_the_answer_was_cut() -> None:
    """A message that was not told is told then."""
    events = scan(answer(CALL, stop="length"))
    assert messages(events) == [CALL]
    assert said(events) == CALL
    assert [event.item.id for event in events if isinstance(event, ItemAdded | ItemDone)] == ["msg_7", "msg_7"]


def test_a_broken_answer_gives_back_what_was_held() -> None:
    """Nothing that the model said is lost, and nothing is called."""
    error = UpstreamError("broken").info
    given = answer(f"On it. {CALL} and <tool_call>{{")[:-2]
    events = scan([*given, Failed(error=error)])
    assert calls(events) == []
    assert sorted(said(events)) == sorted(f"On it. {CALL} and <tool_call>{{")
    assert events[-1] == Failed(error=error)


def test_what_also_came_as_a_call_is_not_called_twice() -> None:
    """The same name with the same arguments, however they are spelled."""
    native = CallItem(id="fc_1", call_id="call_1", name="ring_bell", arguments='{ "times": 2 }')
    more = (ItemAdded(index=1, item=native), ItemDone(index=1, item=native))
    events = scan(answer(f"On it. {CALL}", stop="calls", more=more))
    assert calls(events) == [native]
    assert codes(events) == ["call_duplicated"]


def test_another_call_beside_a_native_one_is_kept() -> None:
    """Other arguments are another call; the order of items is kept."""
    native = CallItem(id="fc_1", call_id="call_1", name="ring_bell", arguments='{"times": 3}')
    more = (ItemAdded(index=1, item=native), ItemDone(index=1, item=native))
    events = scan(answer(f"On it. {CALL}", stop="calls", more=more))
    assert [call.arguments for call in calls(events)] == ['{"times": 3}', '{"times":2}']
    indexes = [event.index for event in events if isinstance(event, ItemAdded)]
    assert len(set(indexes)) == len(indexes)


@pytest.mark.parametrize(
    "item",
    [
        text_message("user", f"What does {CALL} mean?"),
        ResultItem(call_id="c", output=(TextPart(text=f"page: {CALL}"),)),
    ],
    ids=["user", "result"],
)
def test_what_somebody_else_wrote_is_a_quotation(item: MessageItem | ResultItem) -> None:
    """Text that the model only repeats is no call of its own."""
    events = scan(answer(f"You wrote {CALL}."), items=(item,))
    assert calls(events) == []
    assert messages(events) == [f"You wrote {CALL}."]


def test_an_example_in_the_instructions_may_be_followed_to_the_letter() -> None:
    """A template shows how to call; calling so is no quotation."""
    item = text_message("system", f"Call tools like {CALL}.")
    assert len(calls(scan(answer(CALL), items=(item,)))) == 1


def test_reasoning_calls_only_when_it_is_all_there_is() -> None:
    """In the model's own dialect, without text and without another call."""
    thought = ReasoningItem(id="rs_1", text=(CALL,))
    given: list[ModelEvent] = [
        ItemAdded(index=0, item=ReasoningItem(id="rs_1")),
        *(ReasoningDelta(index=0, text=char) for char in CALL),
        ItemDone(index=0, item=thought),
        Finished(stop="done"),
    ]
    assert [call.name for call in calls(scan(given, model="hermes-3"))] == ["ring_bell"]
    assert calls(scan(given, model="other")) == []
    text = [ItemAdded(index=1, item=MessageItem(role="assistant")), TextDelta(index=1, text="No.")]
    done = ItemDone(index=1, item=MessageItem(role="assistant", content=(TextPart(text="No."),)))
    assert calls(scan([*given[:-1], *text, done, given[-1]], model="hermes-3")) == []


def test_a_refusal_is_told_in_its_message() -> None:
    """Other deltas of a message pass, its begin before them."""
    added = ItemAdded(index=0, item=MessageItem(role="assistant"))
    refusal = RefusalDelta(index=0, text="no")
    assert scan([added, refusal]) == [added, refusal]


def test_text_that_is_held_is_told_before_a_refusal_in_its_message() -> None:
    """What the model said first is told first."""
    added = ItemAdded(index=0, item=MessageItem(role="assistant"))
    text, refusal = TextDelta(index=0, text="a ["), RefusalDelta(index=0, text="no")
    events = scan([added, text, refusal])
    assert said(events[:-1]) == "a ["
    assert events[-1] == refusal


def test_text_that_only_the_end_tells_is_scanned_too() -> None:
    """A message without deltas is no way around."""
    given = answer(CALL)
    events = scan([given[0], *given[-2:]])
    assert [call.name for call in calls(events)] == ["ring_bell"]
    assert messages(events) == []


def test_without_tools_or_with_the_choice_of_none_nothing_is_scanned() -> None:
    """Nobody looks at the text then."""
    assert scanner_of(plan(tools=()), RepairRules()) is None
    assert scanner_of(plan(tool_choice=NONE), RepairRules()) is None
    assert scanner_of(plan(), None) is None
    assert scanner_of(plan(), RepairRules()) is not None


def test_markerless_dialects_are_off_unless_they_are_asked_for() -> None:
    """Bare JSON is text by default, and a guess where it is wanted."""
    assert calls(scan(answer(BODY))) == []
    everything = RepairRules(tiers=("native", "marked", "markerless"))
    (call,) = calls(scan(answer(BODY), everything))
    assert call.origin == "guessed"
    (named,) = calls(scan(answer(BODY), RepairRules(dialects=("bare_json",))))
    assert named.origin == "guessed"


def test_a_dialect_may_be_left_out_and_tiers_follow_the_model() -> None:
    """Only the model's own, and one less than all."""
    assert calls(scan(answer(CALL), RepairRules(dialects=("-hermes_json",)))) == []
    native = RepairRules(tiers=("native",))
    assert calls(scan(answer(CALL), native, model="gpt")) == []
    assert len(calls(scan(answer(CALL), native, model="NousResearch/Hermes-3"))) == 1


def test_where_the_answer_shall_be_json_bare_json_is_the_answer() -> None:
    """Markerless dialects are off then."""
    dialects, _ = chosen_dialects(RepairRules(tiers=("native", "marked", "markerless")), "m", is_json=True)
    assert not any(dialect.is_markerless for dialect in dialects)


def test_two_parts_of_a_message_are_two_texts() -> None:
    """A call begun in one part does not end in another."""
    half = len(CALL) // 2
    parts = (TextPart(text=CALL[:half]), TextPart(text=CALL[half:]))
    given: list[ModelEvent] = [
        ItemAdded(index=0, item=MessageItem(id="msg_1", role="assistant")),
        TextDelta(index=0, text=CALL[:half]),
        TextDelta(index=0, text=CALL[half:], part=1),
        ItemDone(index=0, item=MessageItem(id="msg_1", role="assistant", content=parts)),
        Finished(stop="done"),
    ]
    events = scan(given)
    assert calls(events) == []
    assert messages(events) == [CALL]


def test_a_message_that_is_held_is_told_before_an_item_that_begins_behind_it() -> None:
    """Items end in the order in which they are told, also while a call before them is still open."""
    call, said = CallItem(id="fc_1", call_id="c", name="ring_bell"), text_message("assistant", "\n")
    events: list[ModelEvent] = [ItemAdded(index=0, item=call), ItemAdded(index=1, item=MessageItem(role="assistant"))]
    events += [TextDelta(index=1, text="\n"), ItemAdded(index=2, item=ReasoningItem(id="rs_1"))]
    events += [ItemDone(index=0, item=call), ItemDone(index=1, item=said), ItemDone(index=2, item=ReasoningItem())]
    assert scan(events) == events


@pytest.mark.parametrize("end", ["A", "see [", "a <", "```", "\n", CALL[:20]])
def test_what_is_held_of_a_part_is_told_before_the_next_part(end: str) -> None:
    """A part whose end might begin a call is whole when the next one begins, for whoever reads along."""
    contents = (TextPart(text=end), TextPart(text="A"), TextPart(text="then this."))
    item = MessageItem(id="msg_1", role="assistant", content=contents)
    deltas = [TextDelta(index=0, text=part.text, part=number) for number, part in enumerate(contents)]
    begun = ItemAdded(index=0, item=MessageItem(id="msg_1", role="assistant"))
    done = ItemDone(index=0, item=item)
    told = scan([begun, *deltas, done, Finished(stop="done")])
    parts = [event.part for event in told if isinstance(event, TextDelta)]
    assert parts == sorted(parts)
    assert said(told) == text_of(contents)
    assert told[-2:] == [done, Finished(stop="done")]


LIST_TOOL = ToolSpec(
    name="tag", parameters=msgspec.Raw(b'{"properties": {"ids": {"type": "array"}, "text": {"type": "string"}}}')
)


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        ("{'ids': [1, 2,]}", '{"ids":[1,2]}'),
        ('{"ids": "[1, 2]"}', '{"ids":[1,2]}'),
        ('{"text": "a\nb"}', '{"text":"a\\nb"}'),
    ],
    ids=["quotes", "list-in-string", "raw-newline"],
)
def test_arguments_that_are_nearly_right_are_made_right(arguments: str, made: str) -> None:
    """The call keeps what the model wrote, and a note says so."""
    call = CallItem(id="fc_1", call_id="call_1", name="tag", arguments=arguments)
    events = scan([ItemDone(index=0, item=call)], tools=(LIST_TOOL,))
    (done,) = calls(events)
    assert (done.arguments, done.raw, done.origin) == (made, arguments, "repaired")
    assert codes(events) == ["arguments_mended"]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "a{"text": "a"}',
        '{"text": "say "hi""}',
        '{"ids": [1],, "text": "a"}',
        "{'ids': [1,,2]}",
        '{"ids": [1',
        '{"ids": [1, 2]',
        "",
        "{}",
        '{"text": "[1]"}',
        "[1]",
        '{ "ids" : [ ] }',
        "{'ids': [1",
    ],
)
def test_arguments_that_are_cut_or_right_stay_as_they_are(arguments: str) -> None:
    """Nothing is completed, and nothing rewritten without need."""
    call = CallItem(id="fc_1", call_id="call_1", name="tag", arguments=arguments)
    assert scan([ItemDone(index=0, item=call)], tools=(LIST_TOOL,)) == [ItemDone(index=0, item=call)]


PARTS = ["a", "f", "func", "function", "<", "<tool", CALL, "\n", "`", "```", "- ", "1.", "> ", " ", "Action:", "[", "é"]


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.integers(1, 9))
def test_plain_text_before_a_call_changes_nothing_of_it(parts: list[str], size: int) -> None:
    """Text that passes unread leaves what follows it as it would be if all of it had been read."""
    text = "".join(parts)
    cut, whole = scan(answer(text, size=size)), scan(answer(text, size=len(text) or 1))
    assert (said(cut), messages(cut), calls(cut)) == (said(whole), messages(whole), calls(whole))
    found = TextScanner(TextTools([TOOL]), *chosen_dialects(RepairRules(), "m")[:1])
    pieces = [*found.feed(text), *found.finish()]
    assert said(whole) == "".join(piece for piece in pieces if isinstance(piece, str))
    assert len(calls(whole)) == sum(len(piece.calls) for piece in pieces if isinstance(piece, FoundCalls))


@pytest.mark.parametrize("text", ["The end.", "of functions", "a functional"])
def test_plain_text_is_passed_on_as_the_same_event(text: str) -> None:
    """What cannot be a call is not even copied."""
    events = answer(text, size=99)
    told = scan(events)
    assert told == events
    assert told[1] is events[1]
    assert told[2] is events[2]


@pytest.mark.parametrize(
    "given",
    ['```json\n{"a": 1}\n```', '```\n{"a": 1}```', ' ```JSON\n{"a": 1,}\n``` '],
)
def test_arguments_in_a_fence_are_taken_out_of_it(given: str) -> None:
    """A call of the protocol's own with Markdown around its arguments."""
    tools = TextTools([ToolSpec(name="f", parameters=msgspec.Raw(b'{"type":"object","properties":{"a":{}}}'))])
    call = CallItem(call_id="c", name="f", arguments=given)
    assert mended_arguments(call, tools) == '{"a":1}'
    assert mended_arguments(msgspec.structs.replace(call, arguments=given[:-4]), tools) is None
