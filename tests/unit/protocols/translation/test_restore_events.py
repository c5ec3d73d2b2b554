"""Events of an upstream in the terms of the plan."""

import pytest

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    TextDelta,
)
from treadle.core.items import CallItem, MessageItem, ReasoningItem, TextPart, text_message
from treadle.core.tool_definitions import ToolSpec
from treadle.core.usage import Usage
from treadle.protocols.translation.name_mapping import Names
from treadle.protocols.translation.restore_events import Restorer, RestoringDecoder
from treadle.protocols.translation.upstream_features import FeatureRule

TOOLS = (
    ToolSpec(name="facts.propose"),
    ToolSpec(name="clock__now", namespace="clock"),
    ToolSpec(name="run.code", kind="custom", namespace="functions"),
)
NAMES = Names(FeatureRule(), [tool.name for tool in TOOLS])


def restorer(**fields: bool) -> Restorer:
    """Return one for the tools above, the custom one wrapped."""
    return Restorer(NAMES, {tool.name: tool for tool in TOOLS}, frozenset({"run.code"}), **fields)


def call(name: str, arguments: str = "", call_id: str = "c1") -> CallItem:
    """Return a call as the upstream's decoder gives it."""
    return CallItem(call_id=call_id, name=name, arguments=arguments)


def feed(events: list[ModelEvent], **fields: bool) -> list[ModelEvent]:
    """Return what a restorer makes of the events."""
    one = restorer(**fields)
    return [restored for event in events for restored in one.feed(event)]


def codes(events: list[ModelEvent]) -> list[tuple[str, str]]:
    """Return code and action of the notes among events."""
    return [(event.note.code, event.note.action) for event in events if isinstance(event, Noted)]


def test_names_come_back_in_every_event():
    """The name is restored where a call begins and where it ends; the rest of the call is as it was."""
    events = [
        ItemAdded(index=0, item=call("facts_propose")),
        ArgumentsDelta(index=0, text="{}"),
        ItemDone(index=0, item=call("facts_propose", "{}")),
    ]
    assert feed(events) == [
        ItemAdded(index=0, item=call("facts.propose")),
        ArgumentsDelta(index=0, text="{}"),
        ItemDone(index=0, item=call("facts.propose", "{}")),
    ]


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(index=0, text="run_code"),
        ItemDone(index=0, item=text_message("assistant", "facts_propose")),
        ItemDone(index=0, item=call("unnamed", "{}")),
        ArgumentsDelta(index=7, text="x"),
        Finished(stop="done"),
        Failed(error=ErrorInfo(code="c", message="m")),
    ],
)
def test_everything_else_passes_as_it_is(event):
    """Only calls of offered tools change."""
    assert feed([event]) == [event]


def test_a_namespace_comes_back():
    """An upstream without namespaces called the flat name."""
    (done,) = feed([ItemDone(index=0, item=call("clock__now", "{}"))])
    assert done == ItemDone(index=0, item=CallItem(call_id="c1", name="clock__now", arguments="{}", namespace="clock"))


def test_a_custom_call_comes_back_with_deltas_of_its_input():
    """The client sees a custom tool call as from an upstream that has them."""
    wrapped = '{"input":"a\\nb"}'
    pieces = ['{"inp', 'ut":"a', "\\", 'nb"', "}"]
    events = [
        ItemAdded(index=3, item=call("run_code")),
        *(ArgumentsDelta(index=3, text=piece) for piece in pieces),
        ItemDone(index=3, item=call("run_code", wrapped)),
    ]
    bare = CallItem(call_id="c1", name="run.code", kind="custom", namespace="functions")
    assert feed(events) == [
        ItemAdded(index=3, item=bare),
        ArgumentsDelta(index=3, text="a"),
        ArgumentsDelta(index=3, text="\nb"),
        ItemDone(
            index=3,
            item=CallItem(call_id="c1", name="run.code", kind="custom", namespace="functions", arguments="a\nb"),
        ),
    ]


def test_a_custom_call_that_was_not_streamed_is_told_whole():
    """Deltas always add up to the input, also when the arguments come only at the end."""
    for begun in ([], [ItemAdded(index=0, item=call("run_code"))]):
        *_, delta, done = feed([*begun, ItemDone(index=0, item=call("run_code", '{"input":"late"}'))])
        assert delta == ArgumentsDelta(index=0, text="late")
        assert isinstance(done, ItemDone)
        assert isinstance(done.item, CallItem)
        assert (done.item.arguments, done.item.raw) == ("late", None)


def test_two_custom_calls_do_not_mix():
    """Interleaved calls each keep their own text."""
    events = [
        ItemAdded(index=0, item=call("run_code")),
        ItemAdded(index=1, item=call("run_code", call_id="c2")),
        ArgumentsDelta(index=0, text='{"input":"a'),
        ArgumentsDelta(index=1, text='{"input":"b'),
        ItemDone(index=1, item=call("run_code", '{"input":"b2"}', "c2")),
        ItemDone(index=0, item=call("run_code", '{"input":"a2"}')),
    ]
    done = [event.item for event in feed(events) if isinstance(event, ItemDone)]
    assert [item.arguments for item in done if isinstance(item, CallItem)] == ["b2", "a2"]


def test_an_input_otherwise_than_asked_is_noted_and_kept_raw():
    """The text is what the model meant as far as it can be told; what it wrote is kept beside."""
    events = feed([ItemDone(index=0, item=call("run_code", "print(1)"))])
    assert codes(events) == [("custom_input", "repaired")]
    done = events[-1]
    assert isinstance(done, ItemDone)
    assert isinstance(done.item, CallItem)
    assert (done.item.arguments, done.item.raw) == ("print(1)", "print(1)")


def test_a_real_custom_call_is_not_unwrapped():
    """An upstream that answers with custom calls all the same says its text plainly."""
    real = CallItem(call_id="c", name="run_code", kind="custom", arguments='{"input":"x"}')
    (done,) = feed([ItemDone(index=0, item=real)])
    assert isinstance(done, ItemDone)
    assert isinstance(done.item, CallItem)
    assert done.item.arguments == '{"input":"x"}'


@pytest.mark.parametrize(
    "name", ["functions.facts_propose", "default_api:facts_propose", "tools.facts.propose", "Facts.Propose"]
)
def test_stray_names_are_mended_only_where_that_is_wanted(name):
    """A name with a known prefix or in another case is one offered tool, noted once."""
    events: list[ModelEvent] = [ItemAdded(index=0, item=call(name)), ItemDone(index=0, item=call(name, "{}"))]
    kept = feed(events)
    assert (codes(kept), [event for event in kept if not isinstance(event, Noted)]) == (
        [("name_stray", "kept")],
        events,
    )
    note, added, done = feed(events, mends_names=True)
    assert codes([note]) == [("name_mended", "repaired")]
    assert (added, done) == (
        ItemAdded(index=0, item=call("facts.propose")),
        ItemDone(index=0, item=call("facts.propose", "{}")),
    )


def test_a_name_is_never_mended_towards_a_tool_that_was_not_offered():
    """What cannot be told stays as the model wrote it."""
    event = ItemDone(index=0, item=call("functions.delete_all", "{}"))
    note, kept = feed([event], mends_names=True)
    assert (codes([note]), kept) == ([("invented_tool", "kept")], event)


def test_several_calls_against_the_flag_are_noted_and_kept():
    """Once for each call too many; no call is lost."""
    events: list[ModelEvent] = [
        event
        for number in range(3)
        for event in (
            ItemAdded(index=number, item=call("facts.propose", call_id=f"c{number}")),
            ItemDone(index=number, item=call("facts.propose", "{}", f"c{number}")),
        )
    ]
    assert codes(feed(events)) == []
    got = feed(events, is_single=True)
    assert codes(got) == [("parallel_ignored", "kept")] * 2
    assert [event for event in got if not isinstance(event, Noted)] == events


class Recorded:
    """A decoder that gives what it is told to."""

    def __init__(self, *events: ModelEvent) -> None:
        self._events = list(events)

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Give all but the last."""
        return self._events[:-1]

    def finish(self) -> list[ModelEvent]:
        """Give the last."""
        return self._events[-1:]


MESSAGE = ItemDone(index=0, item=text_message("assistant", "hi"))
EMPTY = ItemDone(index=0, item=MessageItem(role="assistant"))
THOUGHT = ItemDone(index=1, item=ReasoningItem(text=("hm",)))
CALL = ItemDone(index=2, item=call("facts.propose", "{}"))
USED = Usage(input_tokens=1)
DIALECT = ItemDone(index=0, item=text_message("assistant", '<tool_call>{"name":"f"}</tool_call>'))
SECOND_END = ItemDone(index=0, item=text_message("assistant", "so</think>it is"))
FENCED = ItemDone(index=0, item=text_message("assistant", "write\n```\n<tool_call></think>\n```\nso"))
THOUGHT_CALL = ItemDone(index=1, item=ReasoningItem(text=("[TOOL_CALLS] f",)))


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((MESSAGE, Finished(stop="done", raw_stop="stop", usage=USED)), []),
        ((CALL, Finished(stop="calls", raw_stop="tool_calls", usage=USED)), []),
        ((CALL, Finished(stop="calls", raw_stop="STOP", usage=USED)), []),
        ((CALL, Finished(stop="calls", raw_stop="stop", usage=USED)), ["stop_contradicts"]),
        ((MESSAGE, CALL, Finished(stop="calls", raw_stop="end_turn", usage=USED)), ["stop_contradicts"]),
        ((MESSAGE, Finished(stop="done", raw_stop="tool_calls", usage=USED)), ["stop_contradicts"]),
        ((THOUGHT, Finished(stop="done", usage=USED)), ["reasoning_only"]),
        ((THOUGHT, EMPTY, Finished(stop="done", usage=USED)), ["reasoning_only"]),
        ((EMPTY, Finished(stop="done", usage=USED)), ["empty_answer"]),
        ((Finished(stop="done", usage=USED),), ["empty_answer"]),
        ((Finished(stop="length", usage=USED),), []),
        ((MESSAGE, Finished(stop="done")), ["usage_missing"]),
        ((DIALECT, DIALECT, Finished(stop="done", usage=USED)), ["dialect_text"]),
        ((THOUGHT_CALL, MESSAGE, Finished(stop="done", usage=USED)), ["dialect_thought"]),
        ((SECOND_END, Finished(stop="done", usage=USED)), ["stray_end_think"]),
        ((FENCED, Finished(stop="done", usage=USED)), []),
        ((Failed(error=ErrorInfo(code="c", message="m")),), []),
    ],
)
def test_faults_of_a_whole_answer_are_told_before_its_end(events, told):
    """Empty, all thoughts, or ended otherwise than it says; the end stays the last event."""
    decoder = RestoringDecoder(Recorded(*events), restorer())
    got = decoder.feed(b"") + decoder.finish()
    assert [code for code, _ in codes(got)] == told
    assert [event for event in got if not isinstance(event, Noted)] == list(events)


def test_the_decoder_s_events_are_restored():
    """Both ways out of a decoder go through the restorer."""
    one = ItemDone(index=0, item=call("facts_propose", "{}"))
    decoder = RestoringDecoder(Recorded(one, one), restorer())
    for events in (decoder.feed(b""), decoder.finish()):
        (event,) = events
        assert isinstance(event, ItemDone)
        assert isinstance(event.item, CallItem)
        assert event.item.name == "facts.propose"


def test_text_parts_count_as_content():
    """A message with any part is an answer."""
    refusal = ItemDone(index=0, item=MessageItem(role="assistant", content=(TextPart(text=""),)))
    decoder = RestoringDecoder(Recorded(refusal, Finished(stop="done", usage=USED)), restorer())
    assert codes(decoder.feed(b"") + decoder.finish()) == []


class Told:
    """A decoder that gives these events at its end."""

    def __init__(self, events: list[ModelEvent]) -> None:
        self._events = events

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Say nothing yet."""
        return []

    def finish(self) -> list[ModelEvent]:
        """Give them all."""
        return self._events


@pytest.mark.parametrize("arguments", ['{"input":"rm -rf /tmp', '{"input":"rm -rf /tmp/x\\'])
def test_a_custom_tools_input_without_its_end_breaks_the_answer(arguments: str):
    """Free text has no end of its own, and a client would run what there is of it; nothing comes behind the failure."""
    events: list[ModelEvent] = [
        ItemAdded(index=0, item=call("run_code")),
        ArgumentsDelta(index=0, text=arguments),
        ItemDone(index=0, item=call("run_code", arguments)),
        Finished(stop="calls"),
    ]
    decoder = RestoringDecoder(Told(events), restorer())
    told = [*decoder.feed(b""), *decoder.finish()]
    assert [type(event) for event in told] == [ItemAdded, ArgumentsDelta, Failed]
    assert isinstance(told[-1], Failed)
    assert told[-1].error.code == "upstream_broken_stream"
    assert (decoder.feed(b"more"), decoder.finish()) == ([], [])
