"""What is durable when: a call, its result, and what is told of them."""

import asyncio
import gc
import weakref

import pytest

from treadle.core.errors import StoreError
from treadle.core.events import ModelEvent, RunEnded, ToolFinished, ToolStarted
from treadle.core.journal_entries import Entry
from treadle.core.tool_definitions import Outcome
from treadle.engine import write_buffer as minutes
from treadle.engine.write_buffer import WriteBuffer
from unit.engine.fakes import Bench, FakeJournal, FakeModel, FakeToolbox, Reply, ask_for, call, ok, say, server


def bench_of(toolbox: FakeToolbox, effect: str) -> Bench:
    """One round with one call, which the model makes in one piece, then an answer."""
    offer = server("look", effect=effect, approval="never")
    return Bench(FakeModel([whole(ask_for(call("look")))], say("done")), toolbox, offer)


def whole(reply: Reply) -> list[ModelEvent]:
    """Return a reply in one piece."""
    assert isinstance(reply, list)
    return [event for batch in reply for event in batch]


async def test_a_read_that_answers_at_once_is_written_with_its_result():
    """One commit for the round, one for the answer; the order of the entries is kept."""
    bench = bench_of(FakeToolbox(look=ok()), "read")
    await bench.run()
    assert bench.journal.commits == 2
    assert bench.journal.kinds()[:5] == ["tool_call", "reply", "tool_start", "tool_result", "plan"]


@pytest.mark.parametrize("effect", ["idempotent", "write", "destructive"])
async def test_a_call_that_may_change_something_is_durable_before_it_runs(effect: str):
    """Its start stands in the journal when its tool begins."""
    known: list[list[str]] = []

    def look(_: object) -> Outcome:
        known.append(bench.journal.kinds())
        return Outcome(text="fine")

    bench = bench_of(FakeToolbox(look=look), effect)
    await bench.run()
    assert known == [["tool_call", "reply", "tool_start"]]
    assert bench.journal.commits == 3


async def test_the_call_of_a_read_that_takes_its_time_is_durable_and_told_while_it_runs():
    """Who watches does not wait for its result."""
    answer, told = asyncio.Event(), asyncio.Event()
    bench = bench_of(FakeToolbox(look=answer), "read")

    def hear(batch: list) -> None:
        bench.events.extend(batch)
        if bench.of(ToolStarted):
            told.set()

    running = asyncio.create_task(bench.loop.run(bench.journal, hear))
    await told.wait()
    assert bench.journal.kinds() == ["tool_call", "reply", "tool_start"]
    assert not bench.of(ToolFinished)
    answer.set()
    await running
    numbers = [numbered.seq for numbered in bench.events if numbered.seq]
    assert numbers == sorted(set(numbers))
    assert bench.journal.commits == 3


def watch(bench: Bench) -> tuple[asyncio.Event, asyncio.Event]:
    """Return what is set when the first write begins, and when it has ended."""
    begun, over = asyncio.Event(), asyncio.Event()
    append = bench.journal.append

    def watched(*arguments: object) -> asyncio.Future[int]:
        write = append(*arguments)
        begun.set()
        write.add_done_callback(lambda _: over.set())
        return write

    bench.journal.append = watched
    return begun, over


async def test_a_call_that_cannot_be_written_while_its_read_runs_ends_the_run():
    """Nothing of it is told, and its result is not written either."""
    answer = asyncio.Event()
    bench = bench_of(FakeToolbox(look=answer), "read")
    bench.journal.fail_at_commit = 1
    _, refused = watch(bench)
    running = asyncio.create_task(bench.run())
    await refused.wait()
    answer.set()
    with pytest.raises(StoreError, match="disk full"):
        await running
    assert bench.journal.entries == []
    assert not bench.of(ToolStarted)


async def test_a_run_that_is_cancelled_while_the_call_of_a_read_is_written_waits_for_that():
    """Its end comes behind it, once and in order."""
    bench = bench_of(FakeToolbox(look=asyncio.Event()), "read")
    bench.journal.gate = asyncio.Event()
    begun, _ = watch(bench)
    running = asyncio.create_task(bench.run())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ending = asyncio.create_task(bench.loop.abort())
    bench.journal.gate.set()
    ended = await ending
    assert ended.status == "cancelled"
    assert bench.journal.kinds() == ["tool_call", "reply", "tool_start", "error", "tool_result", "status"]
    assert [type(event) for event in bench.of(ToolStarted) + bench.of(ToolFinished)] == [ToolStarted, ToolFinished]


class Slow:
    """A journal whose one write ends when the test says so."""

    def __init__(self) -> None:
        self.write: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def append(self, entries: list[Entry], ended: object = None) -> asyncio.Future[int]:
        return self.write


async def test_a_write_that_is_cancelled_is_freed_at_once():
    """The error holds no frames that hold the run: aborted streams must not wait for the garbage collector."""
    gc.disable()
    try:
        journal, book = Slow(), WriteBuffer()
        freed = weakref.ref(book)
        book.attach(journal, lambda batch: None)
        book.steps.append((RunEnded(status="completed"), Entry(kind="note", at=1.0)))
        writing = asyncio.create_task(book.write())
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.sleep(0)
        journal.write.set_result(1)
        with pytest.raises(asyncio.CancelledError):
            await writing
        book.detach()
        del journal, book, writing
        await asyncio.sleep(0)  # the loop lets go of what woke this test
        assert freed() is None
    finally:
        gc.enable()


async def test_what_was_written_behind_is_told_before_what_comes_after_it():
    """Also when the next write comes in the very turn in which the former is done, before its callbacks have run."""
    told: list[int] = []
    book = WriteBuffer()

    class Done:
        head = 0

        def append(self, entries: list[Entry], ended: object = None) -> asyncio.Future[int]:
            future = asyncio.get_running_loop().create_future()
            self.head += len(entries)
            future.set_result(self.head)
            return future

    book.attach(Done(), lambda batch: told.extend(numbered.seq for numbered in batch))
    event = RunEnded(status="completed")
    book.steps.append((event, Entry(kind="note", at=1.0)))
    book._start_write()
    book.steps += [(event, None), (event, Entry(kind="note", at=2.0))]
    await book.write()
    await asyncio.sleep(0)
    assert told == [1, 0, 2]


@pytest.mark.parametrize(("is_private", "batches"), [(False, [2, 2]), (True, [4])])
async def test_who_hears_only_of_the_end_is_told_its_last_words_with_it(is_private: bool, batches: list[int]):
    """Whoever reads along has them before they are written."""
    bench = Bench(FakeModel([whole(say("done"))]))
    told: list[list] = []
    await bench.loop.run(bench.journal, told.append, is_private=is_private)
    assert [len(batch) for batch in told] == batches
    assert [numbered.seq for batch in told for numbered in batch] == [0, 0, 1, 3]


async def test_the_pieces_of_a_private_run_are_told_when_the_model_has_ended():
    """Until then the call can be made again, as if it never was."""
    bench = Bench(FakeModel(say("done")))
    told: list[list] = []
    await bench.loop.run(bench.journal, told.append, is_private=True)
    assert [len(batch) for batch in told] == [4]


async def test_what_is_only_written_is_told_to_nobody():
    """There is nothing to tell of an entry without an event."""
    book, journal, told = WriteBuffer(), FakeJournal(), list[list]()
    book.attach(journal, told.append)
    book.steps.append((None, Entry(kind="note", at=1.0)))
    await book.write()
    assert (journal.kinds(), told) == (["note"], [])


async def test_a_write_that_was_put_off_is_not_begun_after_the_run_was_let_go(monkeypatch: pytest.MonkeyPatch):
    """Nobody is there any more to write for."""
    monkeypatch.setattr(minutes, "WRITE_DELAY_S", 0.0)
    book, journal = WriteBuffer(), FakeJournal()
    book.attach(journal, lambda _: None)
    book.steps.append((None, Entry(kind="note", at=1.0)))
    book.write_soon()
    book.detach()
    for _ in range(3):
        await asyncio.sleep(0)
    assert journal.commits == 0
