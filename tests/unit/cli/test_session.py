"""A session: the thread from turn to turn, and what an interrupt does."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from treadle.canon.errors import ConfigError
from treadle.canon.events import ItemDone, Numbered, RunEnded, RunEvent, RunStarted, ToolFinished
from treadle.canon.items import AnyItem, CallItem, text_message, text_result
from treadle.canon.request import Request
from treadle.cli.session import Interrupts, Session

CALL = CallItem(call_id="call_1", name="add", arguments="{}", side="server")
ANSWER = text_message("assistant", "done", "msg_1")
RESULT = text_result(CALL, "1")


class FakeRun:
    """A run that tells a call, its result and an answer; it waits before its end if told to."""

    def __init__(self, number: int, waits: bool) -> None:
        self.number = number
        self.end = asyncio.Event()
        self.is_cancelled = False
        if not waits:
            self.end.set()

    async def events(self) -> AsyncGenerator[list[Numbered], None]:
        """Yield the events."""
        response_id = f"resp_{self.number}"
        told: list[RunEvent] = [
            RunStarted(run_id="run", response_id=response_id, model="m", created_at=0.0),
            ItemDone(index=0, item=CALL),
            ToolFinished(index=0, call=CALL, result=RESULT),
            ItemDone(index=1, item=ANSWER),
        ]
        yield [Numbered(event=event) for event in told]
        await asyncio.wait_for(self.end.wait(), 5)
        yield [Numbered(event=RunEnded(status="cancelled" if self.is_cancelled else "completed"))]

    async def cancel(self) -> None:
        """End now."""
        self.is_cancelled = True
        self.end.set()


class FakeRuns:
    """Remembers what was asked."""

    def __init__(self, waits: bool = False) -> None:
        self.waits = waits
        self.requests: list[Request] = []

    async def start(self, request: Request) -> FakeRun:
        """Start a run."""
        self.requests.append(request)
        return FakeRun(len(self.requests), self.waits)


def make(runs: FakeRuns, persistence: str = "on") -> Session:
    """Return a session on fake runs."""
    settings = SimpleNamespace(store=SimpleNamespace(persistence=persistence))
    return Session(cast("Any", SimpleNamespace(runs=runs, settings=settings)), "m")


async def send(session: Session, text: str) -> list[RunEvent]:
    """Run one turn to its end."""
    return [event async for event in session.send(text)]


async def test_the_next_turn_continues_the_last_response() -> None:
    """What is stored is continued by its id, and only the new prompt is sent."""
    runs = FakeRuns()
    session = make(runs)
    await send(session, "one")
    await send(session, "two")
    assert [(request.previous_response_id, request.items) for request in runs.requests] == [
        (None, (text_message("user", "one"),)),
        ("resp_1", (text_message("user", "two"),)),
    ]


async def test_without_persistence_the_session_remembers_by_itself() -> None:
    """Nothing is kept to continue from, so the whole conversation is sent again: call, result and answer in order."""
    runs = FakeRuns()
    session = make(runs, "off")
    await send(session, "one")
    await send(session, "two")
    items: tuple[AnyItem, ...] = (text_message("user", "one"), CALL, RESULT, ANSWER, text_message("user", "two"))
    assert runs.requests[1].items == items
    assert runs.requests[1].previous_response_id is None


@pytest.mark.parametrize("persistence", ["on", "off"])
async def test_forgetting_begins_anew(persistence: str) -> None:
    """After /new the model knows nothing of before."""
    runs = FakeRuns()
    session = make(runs, persistence)
    await send(session, "one")
    session.forget()
    await send(session, "two")
    assert runs.requests[1] == Request(protocol="treadle", model="m", items=(text_message("user", "two"),))


async def test_an_interrupt_ends_the_turn_and_not_the_program() -> None:
    """While a turn runs the signal cancels its run; the task goes on."""
    session = make(FakeRuns(waits=True))
    interrupts = Interrupts()
    interrupts.watch()
    interrupts.guard(session)
    seen: list[RunEvent] = []
    async for event in session.send("one"):
        seen.append(event)
        if isinstance(event, RunStarted):
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)
    assert seen[-1] == RunEnded(status="cancelled")
    assert not session.is_running
    assert not interrupts.is_terminated


async def test_an_interrupt_while_idle_ends_the_program() -> None:
    """Without a turn the signal cancels the main task."""
    interrupts = Interrupts()

    async def main() -> None:
        interrupts.watch()
        interrupts.guard(make(FakeRuns()))
        import os
        import signal

        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.Event().wait(), 5)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(main())
    assert (interrupts.is_terminated, interrupts.exit_code) == (True, 143)


async def test_a_cancel_before_the_run_exists_is_not_lost() -> None:
    """Ctrl-C while the run is being made durable cancels it as soon as it is there."""

    class SlowRuns(FakeRuns):
        async def start(self, request: Request) -> FakeRun:
            session.cancel()
            return await super().start(request)

    session = make(SlowRuns(waits=True))
    assert (await send(session, "one"))[-1] == RunEnded(status="cancelled")


def test_a_session_without_a_model_says_how_to_name_one() -> None:
    """An upstream alone does not say which model to ask."""
    with pytest.raises(ConfigError, match="which model"):
        Session(cast("Any", None), "")
