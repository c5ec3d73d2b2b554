"""The scripted model: what it says, what it checks, how it breaks."""

import msgspec
import pytest

from treadle.core.errors import ConfigError, UpstreamError, UpstreamStatus
from treadle.core.events import Failed, Finished, ItemDone, ModelEvent
from treadle.core.ids import CountingIds
from treadle.core.items import (
    CallItem,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.core.plan import Plan
from treadle.core.tool_definitions import NONE, ToolSpec
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_model import (
    Script,
    ScriptedModel,
    ScriptMismatch,
    ScriptTurn,
    Sees,
    check_sees,
    read_script,
)
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.providers.fakes.stream_faults import SHAPES

CHUNK_SIZES = [1, 2, 3, 5, 7, 11, 23, 64, 256, 4096, None]
USER = text_message("user", "What is the weather?")
CALL = CallItem(call_id="call_1", name="weather", arguments="{}")
PLAN = Plan(items=(USER,), model="m", tools=(ToolSpec(name="weather"), ToolSpec(name="time")))
RICH = ScriptTurn(
    reasoning="Let me think.",
    text="Héllo 🌍, wörld",
    calls=(
        ReplyCall(name="weather", args={"city": "Zürich", "days": [1, 2]}),
        ReplyCall(name="time", args={}),
        ReplyCall(name="weather", raw='{"broken": ', id="mine"),
    ),
    usage=Usage(input_tokens=5, output_tokens=7),
)


async def play(turn: ScriptTurn, plan: Plan = PLAN, **fields: object) -> list[ModelEvent]:
    """Return the events of a script of one turn."""
    model = ScriptedModel(Script(turns=(turn,)), ids=CountingIds(), **fields)  # type: ignore[arg-type]
    events = [event async for batch in model.stream(plan, "run_1") for event in batch]
    assert [isinstance(event, Finished | Failed) for event in events] == [False] * (len(events) - 1) + [True]
    return events


def items(events: list[ModelEvent]) -> list[object]:
    """Return the complete items."""
    return [event.item for event in events if isinstance(event, ItemDone)]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize("chunk_bytes", CHUNK_SIZES)
async def test_a_turn_says_the_same_at_every_chunk_size(chunk_bytes, protocol):
    """Reasoning, text, calls, arguments and usage come out of every real decoder as they were scripted."""
    turn = RICH
    is_broken = protocol in ("chat", "responses")
    if not is_broken:
        # Gemini's arguments are objects, and Messages ends no block of broken ones: there is no way to spell them.
        turn = msgspec.structs.replace(RICH, calls=(*RICH.calls[:2], ReplyCall(name="weather", id="mine")))
    events = await play(turn, chunk_bytes=chunk_bytes, protocol=protocol)
    reasoning, message, first, second, third = items(events)
    assert isinstance(reasoning, ReasoningItem)
    assert reasoning.text == ("Let me think.",)
    assert isinstance(message, MessageItem)
    assert message.content == (TextPart(text="Héllo 🌍, wörld"),)
    calls = [call for call in (first, second, third) if isinstance(call, CallItem)]
    assert [(call.name, call.arguments) for call in calls] == [
        ("weather", '{"city":"Zürich","days":[1,2]}'),
        ("time", "{}"),
        ("weather", '{"broken": ' if is_broken else "{}"),
    ]
    assert [call.call_id for call in calls] == ["call_s1_1", "call_s1_2", "mine"]
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.stop, last.usage) == ("calls", Usage(input_tokens=5, output_tokens=7))


async def test_whole_is_one_batch_and_bytes_are_many():
    """The chunk size decides how many reads there are."""
    for chunk_bytes, many in ((None, False), (1, True)):
        model = ScriptedModel(Script(turns=(RICH,)), ids=CountingIds(), chunk_bytes=chunk_bytes)
        batches = [batch async for batch in model.stream(PLAN, "run_1")]
        assert (len(batches) > 1) is many


async def test_a_refusal_comes_as_a_refusal():
    """What the model declines is kept apart from what it says."""
    (message,) = items(await play(ScriptTurn(refusal="I will not.")))
    assert isinstance(message, MessageItem)
    assert message.content == (RefusalPart(text="I will not."),)


@pytest.mark.parametrize(
    ("turn", "stop"),
    [
        (ScriptTurn(text="a"), "done"),
        (ScriptTurn(text="a", finish="length"), "length"),
        (ScriptTurn(text="a", finish="filtered"), "filtered"),
        (ScriptTurn(calls=(ReplyCall(name="time"),)), "calls"),
        (ScriptTurn(calls=(ReplyCall(name="time", raw='{"a'),), finish="length"), "length"),
    ],
)
async def test_a_turn_ends_as_its_calls_or_its_finish_say(turn, stop):
    """The finish follows from the calls unless the script says otherwise."""
    last = (await play(turn))[-1]
    assert isinstance(last, Finished)
    assert last.stop == stop


STRAY = [("chat", "no_done"), *((protocol, fault) for protocol, shapes in SHAPES.items() for fault in shapes)]


@pytest.mark.parametrize("chunk_bytes", [1, 7, None])
@pytest.mark.parametrize(("protocol", "fault"), STRAY)
async def test_a_stray_shape_gives_the_same_reply(protocol, fault, chunk_bytes):
    """Calls, arguments, order, finish and usage survive each shape, and ids stay distinct."""
    turn = ScriptTurn(
        text="Now:",
        calls=(
            ReplyCall(name="weather", args={"city": "Zürich", "deep": {"a": [1]}}),
            ReplyCall(name="time", args={"z": "CET"}),
        ),
        usage=Usage(input_tokens=5, output_tokens=7),
        faults=Faults(**{fault: True}),
    )
    events = await play(turn, chunk_bytes=chunk_bytes, protocol=protocol)
    message, *calls = items(events)
    assert isinstance(message, MessageItem)
    assert message.content == (TextPart(text="Now:"),)
    assert [(call.name, call.arguments) for call in calls if isinstance(call, CallItem)] == [
        ("weather", '{"city":"Zürich","deep":{"a":[1]}}'),
        ("time", '{"z":"CET"}'),
    ]
    assert len({call.call_id for call in calls if isinstance(call, CallItem)}) == 2
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.stop, last.usage) == ("calls", Usage(input_tokens=5, output_tokens=7))


async def test_shapes_can_be_combined():
    """A provider seldom has only one fault."""
    faults = Faults(no_index=True, no_id=True, args_as_object=True, no_done=True, empty_final=True, dup_chunk=True)
    calls = (ReplyCall(name="weather", args={"a": 1}), ReplyCall(name="time", args={"b": 2}))
    events = await play(ScriptTurn(calls=calls, faults=faults))
    assert [call.arguments for call in items(events) if isinstance(call, CallItem)] == ['{"a":1}', '{"b":2}']


async def test_status_refuses_before_the_first_byte():
    """A scripted refusal goes the way of a real one."""
    faults = Faults(status=429, message="slow down", code="tokens", retry_after_s=2)
    with pytest.raises(UpstreamStatus) as caught:
        await play(ScriptTurn(faults=faults))
    info = caught.value.info
    assert (info.status, info.code, info.retry_after_s) == (429, "tokens", 2.0)
    assert info.message == "upstream 'script' answered 429: slow down"


async def test_a_disconnect_cuts_after_so_many_bytes():
    """In the middle it is a failed event, at the very start it is raised."""
    events = await play(ScriptTurn(text="one two three", faults=Faults(disconnect_after=400)), chunk_bytes=50)
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.error.message == "upstream 'script' broke off in the middle of its answer"
    with pytest.raises(UpstreamError, match="broke off"):
        await play(ScriptTurn(text="one two three", faults=Faults(disconnect_after=0)))


@pytest.mark.parametrize(("stall_s", "slept", "ending"), [(5.0, [5.0], Finished), (300.0, [120.0], Failed)])
async def test_a_stall_sleeps_on_the_injected_clock(stall_s, slept, ending):
    """A stall shorter than the idle timeout only delays, a longer one fails as silence does."""
    sleeps: list[float] = []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)

    turn = ScriptTurn(text="one two three four", faults=Faults(stall_s=stall_s))
    events = await play(turn, sleep=sleep, chunk_bytes=20)
    assert sleeps == slept
    assert isinstance(events[-1], ending)
    if isinstance(events[-1], Failed):
        assert events[-1].error.code == "upstream_timeout"


@pytest.mark.parametrize(
    ("sees", "plan", "problem"),
    [
        (Sees(tools=("time", "weather")), PLAN, None),
        (Sees(tools=("time",)), PLAN, "tools: expected ['time'], got ['time', 'weather']"),
        (Sees(tools=()), PLAN, "tools: expected [], got ['time', 'weather']"),
        (Sees(tool_choice="none"), Plan(items=(USER,), model="m", tool_choice=NONE), None),
        (Sees(tool_choice="required"), PLAN, "tool_choice: expected 'required', got 'auto'"),
        (Sees(last_role="user", contains="weather"), PLAN, None),
        (Sees(last_role="tool"), PLAN, "last_role: expected 'tool', got 'user'"),
        (Sees(last_role="user"), Plan(items=(), model="m"), "last_role: expected 'user', got 'nobody'"),
        (Sees(last_role="assistant"), Plan(items=(USER, CALL), model="m"), None),
        (Sees(contains=("weather", "snow")), PLAN, "contains: expected 'snow' in 'What is the weather?'"),
        (Sees(result_code="ok"), PLAN, "result_code: expected 'ok', got []"),
    ],
)
def test_sees_says_what_differs(sees, plan, problem):
    """Each expectation is checked, and a mismatch names it with both sides."""
    assert check_sees(sees, plan) == ([] if problem is None else [problem])


@pytest.mark.parametrize(
    ("result", "codes"),
    [
        (text_result(CALL, "fine"), {"ok"}),
        (text_result(CALL, "no", is_error=True, rc="timeout"), {"timeout"}),
        (text_result(CALL, '{"error":{"code":"ARGUMENTS_TOO_LARGE","message":"no"}}'), {"ok", "ARGUMENTS_TOO_LARGE"}),
        (text_result(CALL, '{"error":"no"}', rc="failed"), {"failed"}),
        (text_result(CALL, "[1]"), {"ok"}),
    ],
)
def test_a_result_code_is_the_result_s_own_or_the_one_it_tells(result, codes):
    """In process the code travels beside the text, over HTTP only in it; any of the last results may have it."""
    plan = Plan(items=(USER, CALL, text_result(CALL, "0", rc="0"), result), model="m")
    for code in codes | {"0"}:
        assert check_sees(Sees(result_code=code, last_role="tool"), plan) == []
    assert check_sees(Sees(result_code="other"), plan) != []


def test_contains_looks_at_all_results_that_came_last():
    """Two results of one turn are one answer to the model."""
    plan = Plan(
        items=(USER, CALL, ResultItem(call_id="1", output=(TextPart(text="left"),)), text_result(CALL, "right")),
        model="m",
    )
    assert check_sees(Sees(contains=("left", "right")), plan) == []
    assert check_sees(Sees(contains="What"), plan) != []


async def test_a_mismatch_is_raised_and_kept():
    """A test that swallows the exception still fails when it verifies the script."""
    model = ScriptedModel(Script(turns=(ScriptTurn(sees=Sees(last_role="tool")),)), ids=CountingIds())
    words = "model call 1: last_role: expected 'tool', got 'user'"
    with pytest.raises(ScriptMismatch) as caught:
        await anext(model.stream(PLAN, "run_1"))
    assert str(caught.value) == words
    with pytest.raises(ScriptMismatch, match="model call 1"):
        model.player.verify()
    assert isinstance(caught.value, AssertionError)


async def test_one_call_too_many_is_a_mismatch():
    """A loop that goes on after the script's end is caught."""
    model = ScriptedModel(Script(turns=(ScriptTurn(text="a"),)), ids=CountingIds())
    async for _ in model.stream(PLAN, "run_1"):
        pass
    model.player.verify()
    with pytest.raises(ScriptMismatch, match="model call 2: the script has only 1 turns"):
        await anext(model.stream(PLAN, "run_1"))


def test_turns_left_over_are_a_mismatch():
    """A loop that ends too early is caught too."""
    model = ScriptedModel(Script(turns=(ScriptTurn(), ScriptTurn())), ids=CountingIds())
    with pytest.raises(ScriptMismatch, match="2 of 2 turns were never asked for"):
        model.player.verify()


async def test_the_plans_are_kept_for_the_test_to_look_at():
    """What the model was asked can be asserted whole."""
    model = ScriptedModel(Script(turns=(ScriptTurn(text="a"),)), ids=CountingIds())
    async for _ in model.stream(PLAN, "run_1"):
        pass
    assert model.player.plans == [PLAN]


def test_a_script_is_read_from_toml():
    """The form of the scenario files, their other tables left alone."""
    script = read_script(
        """
        id = "some.scenario"
        [[turn]]
        user = "hi"
        [[script]]
        sees = { tools = ["draft.patch"], last_role = "user", contains = "hi" }
        calls = [
          { name = "draft.patch", raw = '{"path":' },
          { name = "draft.patch", args = { path = "/a" }, id = "x" },
        ]
        [[script]]
        text = "Done."
        finish = "length"
        usage = { input_tokens = 3, output_tokens = 1 }
        faults = { no_done = true, disconnect_after = 9 }
        """
    )
    assert script == Script(
        turns=(
            ScriptTurn(
                sees=Sees(tools=("draft.patch",), last_role="user", contains="hi"),
                calls=(
                    ReplyCall(name="draft.patch", raw='{"path":'),
                    ReplyCall(name="draft.patch", args={"path": "/a"}, id="x"),
                ),
            ),
            ScriptTurn(
                text="Done.",
                finish="length",
                usage=Usage(input_tokens=3, output_tokens=1),
                faults=Faults(no_done=True, disconnect_after=9),
            ),
        )
    )


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[[script]]\ntxt = 1", "unknown field `txt`"),
        ('[[script]]\ncalls = [ { name = "a", agrs = {} } ]', r"unknown field `agrs` - at `\$\[0\]\.calls\[0\]`"),
        ("[[script]]\nfaults = { no_dnoe = true }", "unknown field `no_dnoe`"),
        ('[[script]]\nfinish = "maybe"', "maybe"),
        ("[[script]", "not a script"),
        ("script = 3", "not a script"),
    ],
)
def test_a_wrong_script_names_what_is_wrong(toml, words):
    """A typo reports its path instead of being ignored."""
    with pytest.raises(ConfigError, match=words):
        read_script(toml)
