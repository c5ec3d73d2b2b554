import asyncio

from treadle.canon.events import KeptAlive, Numbered, TextDelta
from treadle.runs.feed import Feed


def event(seq: int, text: str = "") -> Numbered:
    """Return a numbered event."""
    return Numbered(event=TextDelta(index=0, text=text) if text else KeptAlive(), seq=seq)


async def read_all(feed: Feed, after: int = 0) -> list[Numbered]:
    """Return everything a reader gets."""
    return [numbered async for batch in feed.read(after) for numbered in batch]


async def test_a_late_reader_sees_everything():
    """Coming after the end is no loss."""
    feed = Feed()
    feed.publish([event(1), event(0, "a")])
    feed.publish([event(2)])
    feed.close()
    assert await read_all(feed) == [event(1), event(0, "a"), event(2)]


async def test_a_reader_goes_on_after_a_number():
    """The n-th event is number n, whether it is durable or live only."""
    feed = Feed()
    feed.publish([event(1), event(0, "a"), event(2), event(0, "b"), event(3)])
    feed.close()
    assert await read_all(feed, after=3) == [event(0, "b"), event(3)]
    assert await read_all(feed, after=5) == []
    assert await read_all(feed, after=99) == []


async def test_readers_at_their_own_pace_get_the_same():
    """Two readers, one slow, both see all batches in order."""
    feed = Feed()
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
