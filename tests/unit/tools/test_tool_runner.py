import asyncio
import contextlib
import contextvars
import datetime
import threading
from typing import Any

import msgspec
import pytest

from treadle.core.errors import InvalidArguments, StoreError, ToolError, ToolFailed
from treadle.core.items import ImagePart, TextPart
from treadle.core.json import read_json
from treadle.core.tool_definitions import CallContext, Envelope, Fault, Outcome, ServerTool, ToolSpec
from treadle.tools import RunnerLimits, ToolContext, ToolRegistry, ToolRunner, tool
from treadle.tools.function_tools import foreign_tool, function_tool

from .fakes import CONTEXT, StillClock, call, make_runner, outcome

BOUND_S = 5
user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


@tool(effect="read")
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return " ".join([f"Hello, {name}!"] * times)


@tool
async def greet_later(name: str) -> str:
    """Greet somebody, asynchronously."""
    await asyncio.sleep(0)
    return f"Hello, {name}!"


def code_of(result: Outcome) -> str:
    """Return the code that the model reads."""
    return read_json(result.text)["error"]["code"]


def message_of(result: Outcome) -> str:
    """Return the message that the model reads."""
    return read_json(result.text)["error"]["message"]


@pytest.mark.parametrize("function", [greet, greet_later])
async def test_sync_and_async_tools_run_alike(function: Any) -> None:
    """The outcome has the text, the envelope, a summary and the size."""
    assert await outcome(function, '{"name":"Ada"}') == Outcome(
        text="Hello, Ada!",
        summary="Hello, Ada!",
        envelope=Envelope(ok=True, data=msgspec.Raw(b'"Hello, Ada!"')),
        output_bytes=11,
        sandbox="none",
    )


async def test_sync_tools_do_not_block_the_loop() -> None:
    """A sync tool runs in a thread, with the context variables of the run."""

    @tool
    def where() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), user.get()]

    user.set("ada")
    assert (await outcome(where)).text == '[false,"ada"]'


async def test_the_duration_is_taken_from_the_clock() -> None:
    """Time is injected, so that a replay has the same durations."""
    clock = StillClock()

    @tool
    async def slow() -> None:
        clock.at += 2.5

    assert (await outcome(slow, clock=clock)).duration_s == 2.5


async def test_all_errors_of_the_arguments_come_back_at_once() -> None:
    """The model reads every error with its path and can repair the call in one go."""
    result = await outcome(greet, '{"times":"x","nam":"Ada"}')
    assert result.rc == "invalid_arguments"
    assert result.is_error
    body = read_json(result.text)["error"]
    assert body["code"] == "invalid_arguments"
    assert sorted((each["path"], each["message"]) for each in body["details"]) == [
        ("/nam", 'is not a known field; did you mean "name"?'),
        ("/name", "is required"),
        ("/times", 'the value is not of type "integer"'),
    ]


@pytest.mark.parametrize("arguments", ['{"name":', '{"name":"a","name":"b"}', "[]", '{"name":NaN}'])
async def test_malformed_arguments_never_reach_the_tool(arguments: str) -> None:
    """Bad JSON is an error result, not a call."""
    result = await outcome(greet, arguments)
    assert (result.rc, code_of(result)) == ("invalid_arguments", "invalid_arguments")


async def test_arguments_over_the_cap_have_their_own_code() -> None:
    """The label stays in the closed list, the text says what happened."""
    result = await outcome(greet, '{"name":"' + "x" * 100 + '"}', limits=RunnerLimits(arguments_bytes_max=50))
    assert (result.rc, code_of(result)) == ("invalid_arguments", "arguments_too_large")


async def test_an_unconvertible_value_is_an_invalid_argument() -> None:
    """What only the conversion can see has the same shape as what the schema sees."""

    @tool
    def day(when: datetime.date) -> str:
        return str(when)

    result = await outcome(day, '{"when":"2026-02-31"}')
    assert result.rc == "invalid_arguments"
    assert read_json(result.text)["error"]["details"][0]["path"] == "/when"


async def test_a_failing_constructor_of_an_argument_is_contained() -> None:
    """A type whose own code raises something odd is a failed call and not a crash."""

    class Odd(msgspec.Struct):
        x: int

        def __post_init__(self) -> None:
            raise KeyError("odd")

    def function(odd: Any) -> None: ...

    function.__annotations__ = {"odd": Odd, "return": None}
    result = await outcome(tool(function), '{"odd":{"x":1}}')
    assert (result.rc, message_of(result)) == ("failed", "KeyError: 'odd'")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gret", "There are: greet."),
        ("zzz", "There are: greet."),
        ("x" * 10_000, "There are: greet."),
        ("bad\ud800\nname", "There are: greet."),
    ],
)
async def test_an_unknown_tool_lists_the_nearest_names(name: str, words: str) -> None:
    """The model can repair a wrong name; a hostile one is cut and harmless."""
    result = await make_runner(greet).run(call(name), CONTEXT)
    assert (result.rc, code_of(result)) == ("unknown_tool", "unknown_tool")
    assert words in message_of(result)
    assert len(result.text) < 400


async def test_without_tools_an_unknown_name_says_so() -> None:
    """There is nothing to suggest."""
    result = await make_runner().run(call("x"), CONTEXT)
    assert message_of(result) == 'There is no tool "x". There are no tools.'


async def test_a_disabled_tool_does_not_run() -> None:
    """What is off is unknown."""
    runner = ToolRunner(ToolRegistry([greet], enabled=()), clock=StillClock())
    assert (await runner.run(call("greet", '{"name":"x"}'), CONTEXT)).rc == "unknown_tool"


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("bad thing"), "ValueError: bad thing"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (FileNotFoundError(2, "No such file", "\udcff"), "FileNotFoundError: [Errno 2] No such file: '\\udcff'"),
        (Exception("\ud800"), "Exception: ?"),
        (Broken(), "Broken"),
        (StopAsyncIteration("x"), "StopAsyncIteration: x"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_a_tool_raises_is_its_result(error: BaseException, message: str, is_async: bool) -> None:
    """Type and message are told, no traceback, and nothing escapes the runner."""

    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    result = await outcome(tool(fail_async if is_async else fail))
    assert result == Outcome(
        text=result.text,
        rc="failed",
        summary=message,
        envelope=result.envelope,
        output_bytes=len(result.text.encode()),
        sandbox="none",
    )
    assert (code_of(result), message_of(result)) == ("failed", message)


async def test_a_sync_tool_may_even_raise_stop_iteration() -> None:
    """The one exception that futures cannot carry is told like the others."""

    @tool
    def fail() -> None:
        next(iter([]))

    assert message_of(await outcome(fail)) == "StopIteration"


async def test_messages_of_exceptions_are_bounded() -> None:
    """A huge exception text is cut."""

    @tool
    def fail() -> None:
        raise ValueError("é" * 100_000)

    assert len((await outcome(fail)).text.encode()) < 1_200


@pytest.mark.parametrize(
    ("error", "rc", "code"),
    [
        (ToolError("No.", code="no_city"), "failed", "no_city"),
        (ToolFailed("No."), "failed", "failed"),
        (InvalidArguments("No."), "invalid_arguments", "invalid_arguments"),
        (InvalidArguments("No.", code="bad_city"), "invalid_arguments", "bad_city"),
        (ToolError("No.", code="ok"), "failed", "ok"),
    ],
)
async def test_a_tool_error_keeps_its_code(error: ToolError, rc: str, code: str) -> None:
    """The model reads the tool's own code; the label for metrics stays in the closed list."""

    @tool
    def fail() -> None:
        raise error

    result = await outcome(fail)
    assert (result.rc, code_of(result), message_of(result)) == (rc, code, "No.")


async def test_a_returned_envelope_can_fail() -> None:
    """A tool may say that it failed without raising."""

    @tool
    def fail() -> Envelope:
        return Envelope(ok=False)

    result = await outcome(fail)
    assert (result.rc, code_of(result)) == ("failed", "failed")


async def test_an_async_tool_is_stopped_at_its_timeout() -> None:
    """It is cancelled, may clean up, and the model reads how long it had."""
    cleaned = asyncio.Event()

    @tool(timeout_s=0.01)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    result = await outcome(hang)
    assert (result.rc, code_of(result)) == ("timeout", "timeout")
    assert message_of(result) == "hang did not finish within 0.01 s."
    assert cleaned.is_set()


async def test_an_async_tool_that_refuses_to_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swallowing the cancellation does not hold up the run."""
    monkeypatch.setattr("treadle.tools.tool_runner.CANCEL_GRACE_S", 0.01)
    release, ended = asyncio.Event(), asyncio.Event()

    @tool(timeout_s=0.01)
    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        ended.set()
        raise ValueError("nobody hears this")

    assert (await outcome(stubborn)).rc == "timeout"
    release.set()
    await asyncio.wait_for(ended.wait(), BOUND_S)


async def test_a_sync_tool_past_its_timeout_is_dropped_and_told() -> None:
    """The thread cannot be killed; it can see that nobody waits, and what it returns is lost."""
    entered, seen = threading.Event(), threading.Event()

    @tool(timeout_s=0.05)
    def hang(context: ToolContext) -> str:
        entered.set()
        deadline = threading.Event()
        for _ in range(BOUND_S * 100):
            if context.cancelled:
                seen.set()
                break
            deadline.wait(0.01)
        return "late"

    result = await outcome(hang)
    assert result.rc == "timeout"
    assert await asyncio.to_thread(seen.wait, BOUND_S)


async def test_hanging_sync_tools_cannot_take_more_threads_than_the_bound() -> None:
    """When all threads hang, the next sync tool times out while waiting; async tools go on."""
    release = threading.Event()

    @tool(timeout_s=0.02)
    def hang() -> None:
        release.wait(BOUND_S)

    @tool(timeout_s=0.02)
    def quick() -> str:
        return "done"

    runner = make_runner(hang, quick, greet_later, limits=RunnerLimits(threads_max=2))
    assert [(await runner.run(call("hang"), CONTEXT)).rc for _ in range(2)] == ["timeout", "timeout"]
    assert (await runner.run(call("quick"), CONTEXT)).rc == "timeout"
    assert (await runner.run(call("greet_later", '{"name":"x"}'), CONTEXT)).rc == "ok"
    release.set()
    runner.close()


@pytest.mark.parametrize("is_async", [True, False])
async def test_cancellation_passes_through(is_async: bool) -> None:
    """Cancelling the run cancels the tool and raises; a sync tool learns of it."""
    entered, told = threading.Event(), threading.Event()

    @tool
    async def wait_async(context: ToolContext) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    @tool
    def wait_sync(context: ToolContext) -> None:
        entered.set()
        pause = threading.Event()
        for _ in range(BOUND_S * 100):
            if context.cancelled:
                told.set()
                return
            pause.wait(0.01)

    running = asyncio.create_task(outcome(wait_async if is_async else wait_sync))
    assert await asyncio.to_thread(entered.wait, BOUND_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(told.wait, BOUND_S)


async def test_a_tool_that_cancels_itself_has_failed() -> None:
    """A stray CancelledError of a tool is not the cancellation of the run."""

    @tool
    async def odd() -> None:
        raise asyncio.CancelledError

    result = await outcome(odd)
    assert (result.rc, message_of(result)) == ("failed", "odd cancelled itself.")


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_tool_that_other_code_cancels_has_its_result_at_once(has_begun: bool) -> None:
    """Also one whose first step never came: nobody waits for its timeout, and the run goes on."""
    begun = asyncio.Event()

    @tool(timeout_s=1000)
    async def odd() -> None:
        begun.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    running = asyncio.create_task(make_runner(odd).run(call("odd"), CONTEXT))
    await asyncio.sleep(0)
    [task] = asyncio.all_tasks() - before - {running}
    if has_begun:
        await asyncio.wait_for(begun.wait(), BOUND_S)
    task.cancel()
    result = await asyncio.wait_for(running, BOUND_S)
    assert begun.is_set() is has_begun
    assert (result.rc, message_of(result)) == ("failed", "odd was cancelled by other code.")


@pytest.mark.parametrize(("effect", "tries"), [("read", 3), ("idempotent", 3), ("write", 1), ("destructive", 1)])
async def test_only_harmless_tools_are_tried_again(effect: Any, tries: int) -> None:
    """A failure of a tool with effects may have happened half-way, so it is not repeated."""
    count = 0

    @tool(effect=effect, retries=2)
    async def fail() -> None:
        nonlocal count
        count += 1
        raise ToolFailed("Down.")

    clock = StillClock()
    assert (await outcome(fail, clock=clock)).rc == "failed"
    assert count == tries
    assert clock.slept == [0.1, 0.2][: tries - 1]


async def test_a_second_try_can_succeed_with_fresh_arguments() -> None:
    """A mutable argument that the first try spoiled is whole again in the second."""
    seen: list[int] = []

    @tool(effect="read", retries=1)
    async def flaky(items: list[int]) -> int:
        seen.append(len(items))
        items.clear()
        if len(seen) == 1:
            raise ConnectionError("reset")
        return len(seen)

    result = await outcome(flaky, '{"items":[1,2]}')
    assert (result.rc, result.text, seen) == ("ok", "2", [2, 2])


@pytest.mark.parametrize("error", [ToolError("No.", code="no_city"), InvalidArguments("No.")])
async def test_an_answer_that_is_an_error_is_not_tried_again(error: ToolError) -> None:
    """Only failures are retried, not errors that the tool means."""
    count = 0

    @tool(effect="read", retries=5)
    async def fail() -> None:
        nonlocal count
        count += 1
        raise error

    await outcome(fail)
    assert count == 1


async def test_tries_share_one_timeout() -> None:
    """Retrying ends when the pause would pass the deadline."""
    clock, count = StillClock(), 0

    @tool(effect="read", retries=100, timeout_s=1)
    async def fail() -> None:
        nonlocal count
        count += 1
        clock.at += 0.3
        raise ToolFailed("Down.")

    assert (await outcome(fail, clock=clock)).rc == "failed"
    assert (count, clock.slept) == (3, [0.1, 0.2])


async def test_output_over_the_cap_is_cut_and_kept() -> None:
    """The model reads the head and a notice; the whole is behind the handle."""
    kept: list[bytes] = []

    async def keep(data: bytes, context: CallContext) -> str | None:
        kept.append(data)
        return "blob_1"

    @tool(output_bytes_max=300)
    def big() -> str:
        return "é" * 1000

    result = await outcome(big, keep=keep)
    assert kept == [("é" * 1000).encode()]
    assert (result.truncated, result.handle, result.output_bytes, result.rc) == (True, "blob_1", 2000, "ok")
    assert len(result.text.encode()) <= 300
    assert result.text.endswith('of 2000 bytes shown; the whole is kept under the handle "blob_1"]')


async def test_what_is_kept_is_bounded_too() -> None:
    """Beyond the bound of the store only the head is kept, on a character boundary, and the notice says so."""
    kept: list[bytes] = []

    async def keep(data: bytes, context: CallContext) -> str | None:
        kept.append(data)
        return "blob_1"

    @tool
    def big() -> str:
        return "é" * 5000

    result = await outcome(big, keep=keep, limits=RunnerLimits(output_bytes_max=300, stored_bytes_max=1001))
    assert kept == [("é" * 500).encode()]
    assert "the first 1000 bytes are kept" in result.text


async def refuse(data: bytes, context: CallContext) -> str | None:
    """Fail to keep anything."""
    raise StoreError("full")


async def forget(data: bytes, context: CallContext) -> str | None:
    """Keep nothing."""
    return None


@pytest.mark.parametrize("keep", [None, refuse, forget])
async def test_output_that_cannot_be_kept_is_cut_all_the_same(keep: Any) -> None:
    """A store that fails does not fail the call."""

    @tool(output_bytes_max=256)
    def big() -> str:
        return "x" * 1000

    result = await outcome(big, keep=keep)
    assert (result.rc, result.truncated, result.handle) == ("ok", True, None)
    assert result.text.endswith("of 1000 bytes shown; the rest was not kept]")


async def test_the_smaller_of_both_caps_holds() -> None:
    """A tool's policy cannot widen the limit of the run."""

    @tool(output_bytes_max=100_000)
    def big(context: ToolContext) -> str:
        return str(context.output_bytes_max) + "x" * 1000

    result = await outcome(big, limits=RunnerLimits(output_bytes_max=400))
    assert result.text.startswith("400x")
    assert 390 < len(result.text.encode()) <= 400


async def test_images_become_parts() -> None:
    """Content parts are passed on, with their text beside them."""
    image = ImagePart(url="data:image/png;base64,AA==")

    @tool
    def draw(context: ToolContext) -> list[Any]:
        context.warn("rough")
        return [TextPart(text="here"), image]

    result = await outcome(draw)
    assert result.text == "here\n[warning] rough"
    assert result.parts == (TextPart(text="here\n[warning] rough"), image)


async def test_text_in_parts_obeys_the_cap() -> None:
    """Parts are no way around the output cap."""

    @tool(output_bytes_max=256)
    def big() -> TextPart:
        return TextPart(text="x" * 1000)

    result = await outcome(big)
    assert result.parts == (TextPart(text=result.text),)
    assert 240 < len(result.text) <= 256


async def test_parts_that_are_too_large_are_refused() -> None:
    """An image cannot be cut, so it is an error with its own code."""

    @tool
    def draw() -> ImagePart:
        return ImagePart(url="data:image/png;base64," + "A" * 2000)

    result = await outcome(draw, limits=RunnerLimits(stored_bytes_max=1000))
    assert (result.rc, code_of(result), result.parts) == ("too_large", "too_large", ())


async def test_bytes_are_refused_with_a_clear_error() -> None:
    """The model reads that the tool is at fault."""

    @tool
    def raw() -> bytes:
        return b"x"

    assert "returned bytes" in message_of(await outcome(raw))


async def test_warnings_stand_below_results_and_errors() -> None:
    """What a tool warned of is read in either case."""

    @tool
    def warn(context: ToolContext, fail: bool) -> str:
        context.warn("old data")
        if fail:
            raise ToolError("No.", code="no")
        return "rain"

    assert (await outcome(warn, '{"fail":false}')).text == "rain\n[warning] old data"
    assert (await outcome(warn, '{"fail":true}')).text == (
        '{"error":{"code":"no","message":"No."},"warnings":["old data"]}'
    )


async def test_the_context_tells_where_the_call_stands() -> None:
    """A tool can know its run, session and call."""

    @tool
    def who(context: ToolContext) -> list[str | None]:
        return [context.run_id, context.session_id, context.call_id]

    assert (await outcome(who)).text == '["run_1","sess_1","call_1"]'


async def test_progress_is_handed_to_the_loop() -> None:
    """A sync tool reports from its thread; whoever watches hears it on the loop."""
    heard: list[tuple[CallContext, str, bool]] = []

    def report(context: CallContext, text: str) -> None:
        heard.append((context, text, threading.current_thread() is threading.main_thread()))

    @tool
    def work(context: ToolContext) -> None:
        context.progress("half")

    await outcome(work, report=report)
    assert heard == [(CONTEXT, "half", True)]


async def test_a_sync_function_may_return_an_awaitable() -> None:
    """A wrapper that hides a coroutine function still works."""

    async def inner() -> str:
        return "inner"

    @tool
    def outer() -> Any:
        return inner()

    assert (await outcome(outer)).text == "inner"


async def test_a_foreign_tool_runs_by_its_own_schema() -> None:
    """Validation is by the schema as written; the handler gets plain values."""

    async def handler(arguments: dict[str, Any], context: ToolContext) -> object:
        return arguments

    schema = msgspec.Raw(b'{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}')
    made = foreign_tool(ServerTool(spec=ToolSpec(name="x", parameters=schema), source="mcp:a"), handler)
    assert (await outcome(made, '{"n":1,"more":2}')).text == '{"n":1,"more":2}'
    assert (await outcome(made, '{"n":"1"}')).rc == "invalid_arguments"


async def test_many_calls_at_once_do_not_mix() -> None:
    """Parallel calls keep their own arguments and results."""
    runner = make_runner(greet, greet_later)
    calls = [call(("greet", "greet_later")[n % 2], f'{{"name":"{n}"}}') for n in range(100)]
    results = await asyncio.gather(*(runner.run(each, CONTEXT) for each in calls))
    assert [result.text for result in results] == [f"Hello, {n}!" for n in range(100)]
    runner.close()


class OwnException(BaseException):
    """What no `except Exception` catches."""


async def test_an_async_tool_that_raises_what_nobody_catches_is_a_failed_tool() -> None:
    """Whatever foreign code raises is its result, whatever its base class."""

    @tool
    async def odd() -> str:
        """Be odd."""
        raise OwnException("odd")

    result = await outcome(odd)
    assert (result.rc, "OwnException" in result.text) == ("failed", True)


async def test_a_result_that_cannot_be_written_is_a_failed_tool() -> None:
    """Half a character in an envelope does not end the run."""

    @tool
    async def odd() -> Envelope:
        """Be odd."""
        return Envelope(ok=False, errors=(Fault(code="x", message="m"), Fault(code="y", message="n", path="\ud83d")))

    assert (await outcome(odd)).rc == "failed"


async def test_what_a_sync_function_leaves_to_be_awaited_shares_its_time() -> None:
    """The thread and the coroutine that it returned have one timeout together, and the coroutine is stopped."""
    stopped = asyncio.Event()

    async def inner() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @tool(timeout_s=0.02)
    def outer() -> Any:
        return inner()

    assert (await outcome(outer)).rc == "timeout"
    assert stopped.is_set()


@pytest.mark.parametrize(("allowed_at", "rc"), [("", "ok"), ("L1", "ok"), ("L2", "ok"), ("L3", "denied")])
async def test_a_call_that_was_allowed_at_a_better_level_is_not_run(allowed_at: str, rc: str) -> None:
    """The person agreed to a command that was confined better than it would be here."""
    ran: list[str] = []

    def act() -> str:
        ran.append("act")
        return "done"

    runner = ToolRunner(ToolRegistry([function_tool(act).placed("L2")]), clock=StillClock())
    found = await runner.run(call("act"), CallContext(run_id="r", sandbox=allowed_at))
    assert (found.rc, ran) == (rc, ["act"] if rc == "ok" else [])
