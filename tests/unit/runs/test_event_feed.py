import asyncio

import msgspec
import pytest

from treadle.core.events import KeptAlive, Numbered, RunEnded, TextDelta
from treadle.runs.event_feed import BATCH_EVENTS_MAX, BATCH_TEXT_MAX, EventFeed


def event(seq: int, text: str = "") -> Numbered:
    """Return a numbered event."""
    return Numbered(event=TextDelta(index=0, text=text) if text else KeptAlive(), seq=seq)


async def read_all(feed: EventFeed, after: int = 0) -> list[Numbered]:
    """Return everything a reader gets."""
    return [numbered async for batch in feed.read(after) for numbered in batch]


async def test_a_late_reader_sees_everything():
    """Coming after the end is no loss."""
    feed = EventFeed()
    feed.publish([event(1), event(0, "a")])
    feed.publish([event(2)])
    feed.close()
    assert await read_all(feed) == [event(1), event(0, "a"), event(2)]


async def test_a_reader_goes_on_after_a_number():
    """The n-th event is number n, whether it is durable or live only."""
    feed = EventFeed()
    feed.publish([event(1), event(0, "a"), event(2), event(0, "b"), event(3)])
    feed.close()
    assert await read_all(feed, after=3) == [event(0, "b"), event(3)]
    assert await read_all(feed, after=5) == []
    assert await read_all(feed, after=99) == []


async def test_readers_at_their_own_pace_get_the_same():
    """Two readers, one slow, both see all batches in order."""
    feed = EventFeed()
    seen: list[list[Numbered]] = [[], []]
    first = asyncio.Event()

    async def follow(number: int) -> None:
        async for batch in feed.read():
            seen[number] += batch
            first.set()

    readers = [asyncio.create_task(follow(0)), asyncio.create_task(follow(1))]
    feed.publish([event(1)])
    await asyncio.wait_for(first.wait(), 5)
    for number in range(2, 6):
        feed.publish([event(number)])
        await asyncio.sleep(0)
    feed.close()
    await asyncio.wait_for(asyncio.gather(*readers), 5)
    assert seen[0] == seen[1] == [event(number) for number in range(1, 6)]


async def test_a_reader_that_is_behind_gets_a_bounded_batch_at_a_time():
    """In order and without a gap: whoever writes it out waits for its client in between."""
    feed, said = EventFeed(), [event(number) for number in range(BATCH_EVENTS_MAX * 2 + 7)]
    feed.publish(said)
    feed.close()
    batches = [batch async for batch in feed.read()]
    assert [len(batch) for batch in batches] == [BATCH_EVENTS_MAX, BATCH_EVENTS_MAX, 7]
    assert [each for batch in batches for each in batch] == said


@pytest.mark.parametrize("stored", [False, True])
async def test_a_reader_that_is_behind_gets_only_so_much_text_at_a_time(stored: bool):
    """Large pieces come by few, one that is larger still alone: nobody holds a whole answer a second time."""
    half, huge = "x" * (BATCH_TEXT_MAX // 2), "y" * (BATCH_TEXT_MAX * 3)
    said = [event(number, text) for number, text in enumerate((half, half, half, huge, huge, half, ""), 1)]
    feed = EventFeed()
    feed.publish(said)
    feed.mark_stored(len(said))
    feed.close()
    batches = [batch async for batch in (feed.read_stored() if stored else feed.read())]
    assert [len(batch) for batch in batches] == [2, 1, 1, 1, 2]
    assert [each for batch in batches for each in batch] == said


def test_what_waits_for_a_reader_is_measured_in_bytes():
    """Of all that it has not taken; who has taken everything, or claims more, waits for nothing."""
    feed, said = EventFeed(), [event(0, "a"), event(0, "bcd"), event(0, "ef")]
    sizes = [len(msgspec.json.encode(each.event)) for each in said]
    assert feed.behind(0) == 0
    feed.publish(said[:2])
    assert feed.behind(0) == sum(sizes[:2])
    feed.publish(said[2:])
    assert [feed.behind(taken) for taken in (0, 1, 2, 3, 9)] == [sum(sizes), sizes[1] + sizes[2], sizes[2], 0, 0]


async def test_who_has_everything_hears_at_once_what_comes():
    """In the turn of whoever publishes; what is heard is not read again, what is left is, in its order."""
    feed, heard = EventFeed(), list[list[Numbered]]()
    reader = feed.read(on_batch=lambda batch: batch[0].seq != 3 and not heard.append(batch))
    reading = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    feed.publish([event(1), event(2)])
    assert heard == [[event(1), event(2)]]
    assert not reading.done()
    feed.publish([event(3)])
    feed.publish([event(4)])
    assert await asyncio.wait_for(reading, 5) == [event(3), event(4)]
    assert len(heard) == 1, "who reads hears nothing that comes meanwhile"


async def test_who_starts_further_on_hears_nothing_that_it_has():
    """A reader that asked for what comes after the third event is not told the second one."""
    feed, heard = EventFeed(), list[list[Numbered]]()
    reading = asyncio.create_task(anext(feed.read(3, lambda batch: not heard.append(batch))))
    await asyncio.sleep(0)
    for number in range(1, 5):
        feed.publish([event(number)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    feed.publish([event(5)])
    feed.close()
    await asyncio.wait([reading], timeout=5)
    assert heard == [[event(4)], [event(5)]]
    assert isinstance(reading.exception(), StopAsyncIteration)


async def test_more_than_a_reader_gets_at_a_time_is_read():
    """Whoever writes a lot waits for its client in between."""
    feed, heard = EventFeed(), list[list[Numbered]]()
    reading = asyncio.create_task(anext(feed.read(on_batch=lambda batch: not heard.append(batch))))
    await asyncio.sleep(0)
    feed.publish([event(number) for number in range(BATCH_EVENTS_MAX + 1)])
    assert len(await asyncio.wait_for(reading, 5)) == BATCH_EVENTS_MAX
    assert heard == []


async def test_a_reader_that_fails_to_hear_fails_alone():
    """The run goes on, and so does everybody else who reads it."""
    feed = EventFeed()

    def fail(batch: list[Numbered]) -> bool:
        raise ValueError("unheard")

    failing, reading = (asyncio.create_task(anext(feed.read(on_batch=handler))) for handler in (fail, None))
    await asyncio.sleep(0)
    feed.publish([event(1)])
    with pytest.raises(ValueError, match="unheard"):
        await asyncio.wait_for(failing, 5)
    assert await asyncio.wait_for(reading, 5) == [event(1)]


async def test_a_reader_that_went_away_hears_nothing():
    """Nothing is told to somebody who was cancelled while waiting."""
    feed, heard = EventFeed(), list[list[Numbered]]()
    reading = asyncio.create_task(anext(feed.read(on_batch=lambda batch: not heard.append(batch))))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading], timeout=5)
    feed.publish([event(1)])
    assert (heard, feed.waiting) == ([], [])


async def test_a_reader_of_what_is_stored_waits_for_the_store():
    """It gets nothing that a crash could take back, and all that is stored, in order."""
    feed = EventFeed()
    reader = feed.read_stored()
    feed.publish([event(1), event(0, "a"), event(0, "b")])
    first = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    assert not first.done()
    feed.mark_stored(2)
    assert await first == [event(1), event(0, "a")]
    feed.mark_stored(1)
    second = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    assert not second.done()
    feed.mark_stored(3)
    assert await second == [event(0, "b")]
    feed.close()
    assert [batch async for batch in reader] == []


async def test_a_reader_of_what_is_stored_hears_that_the_run_was_lost():
    """What was published and not stored is left out; the end that does not stand is not."""
    feed = EventFeed()
    lost = Numbered(event=RunEnded(status="failed"), stands=False)
    feed.publish([event(1), event(0, "a"), lost])
    feed.mark_stored(1)
    feed.close()
    assert [batch async for batch in feed.read_stored()] == [[event(1)], [lost]]
