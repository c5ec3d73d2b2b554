"""Who reads a body may make something of it in the very turn in which it arrives."""

import asyncio
import weakref
import zlib
from collections.abc import Callable
from typing import cast

import pytest

from treadle.http.client_connection import UNPACKED_BYTES, ClientConnection
from treadle.http.client_errors import BodyTooLarge, ConnectionBroken

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n%b\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Frame a piece of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Line:
    """The other end of a connection that is only told what to do."""

    def __init__(self) -> None:
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        """Take a request."""

    def abort(self) -> None:
        """Hear that it is over."""
        self.is_aborted = True


async def asked(headers: bytes = b"", bytes_max: int = 1_000, idle_s: float = 5.0) -> ClientConnection:
    """Return a connection with an answer whose head has come."""
    connection = ClientConnection(lambda _: None, bytes_max)
    connection.connection_made(cast("asyncio.Transport", Line()))
    asking = asyncio.create_task(connection.send_request(b"GET / HTTP/1.1\r\n\r\n", idle_s))
    await asyncio.sleep(0)
    connection.data_received(HEAD % headers)
    await asking
    return connection


class Taker:
    """Takes what comes; of what ends in a full stop it makes all that came before."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.turns: list[asyncio.Task[object] | None] = []

    def __call__(self, data: bytes) -> bytes | None:
        self.taken.append(data)
        self.turns.append(asyncio.current_task())
        return b"".join(self.taken) if data.endswith(b".") else None


async def reading(connection: ClientConnection, take: object) -> "asyncio.Task[object]":
    """Begin to read, and wait until that waits."""
    task = asyncio.create_task(connection.read_into(take))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return task


async def test_what_comes_is_given_on_in_the_turn_in_which_it_does() -> None:
    """No task goes on for it until something is made of it; one network read is one piece."""
    connection, take = await asked(), Taker()
    task = await reading(connection, take)
    connection.data_received(chunk(b"a") + chunk(b"b"))
    connection.data_received(chunk(b"c"))
    assert take.taken == [b"ab", b"c"]
    assert take.turns == [asyncio.current_task()] * 2, "the turn of whoever brings it"
    await asyncio.sleep(0)
    assert not task.done()
    connection.data_received(chunk(b"."))
    assert await task == b"abc."


async def test_what_came_before_and_what_comes_meanwhile_is_given_on_too() -> None:
    """Nothing is lost or told twice where nobody waits: before the reader comes, and until it goes on."""
    connection, take = await asked(), Taker()
    connection.data_received(chunk(b"a"))
    task = await reading(connection, take)
    assert take.taken == [b"a"]
    connection.data_received(chunk(b"b."))
    connection.data_received(chunk(b"c"))
    connection.data_received(chunk(b"d."))
    assert take.taken == [b"a", b"b."]
    assert await task == b"ab."
    later = Taker()
    assert await connection.read_into(later) == b"cd."
    assert later.taken == [b"cd."]


@pytest.mark.parametrize("last", [b"", b"z"], ids=["alone", "with the last piece"])
async def test_the_end_is_nothing_more(last: bytes) -> None:
    """Also where the last piece came with it, of which nothing was made."""
    connection, take = await asked(), Taker()
    task = await reading(connection, take)
    connection.data_received(chunk(b"a"))
    connection.data_received((chunk(last) if last else b"") + END)
    async with asyncio.timeout(1.0):  # and not when the connection has been silent for too long
        assert await task is None
    assert b"".join(take.taken) == b"a" + last
    assert await connection.read_into(take) is None


async def test_the_size_of_a_chunk_that_comes_before_it_is_not_the_end() -> None:
    """Nothing of the body has come: neither bytes, nor their end."""
    connection = await asked()
    task = asyncio.create_task(connection.read())
    await asyncio.sleep(0)
    connection.data_received(b"3\r\n")
    connection.data_received(b"abc\r\n")
    assert await task == b"abc"


async def test_the_next_answer_is_given_to_nobody_who_read_the_one_before() -> None:
    """Though its body comes with its head, before anybody reads it."""
    connection, take = await asked(), Taker()
    task = await reading(connection, take)
    connection.data_received(chunk(b"a") + END)
    assert await task is None
    asking = asyncio.create_task(connection.send_request(b"GET / HTTP/1.1\r\n\r\n", 5.0))
    await asyncio.sleep(0)
    connection.data_received(HEAD % b"" + chunk(b"b"))
    async with asyncio.timeout(1.0):
        await asking
        assert await connection.read() == b"b"
    assert take.taken == [b"a"]


async def test_a_cut_is_raised_behind_what_came_before_it() -> None:
    """As for whoever reads bytes."""
    connection, take = await asked(), Taker()
    task = await reading(connection, take)
    connection.data_received(chunk(b"a"))
    connection.connection_lost(None)
    with pytest.raises(ConnectionBroken):
        await task
    assert take.taken == [b"a"]


async def test_a_fault_of_whoever_takes_is_theirs_to_hear() -> None:
    """It is raised where they wait; the connection, which is in no state to be used, hears of it too."""

    def fail(_: bytes) -> None:
        raise ValueError("not understood")

    connection = await asked()
    task = await reading(connection, fail)
    with pytest.raises(ValueError, match="not understood"):
        connection.data_received(chunk(b"a"))
    with pytest.raises(ValueError, match="not understood"):
        await task


async def test_a_body_larger_than_it_may_be_is_broken_off() -> None:
    """Whoever waits hears so, though all before it was taken as it came."""
    connection, take = await asked(bytes_max=3), Taker()
    task = await reading(connection, take)
    connection.data_received(chunk(b"abc"))
    with pytest.raises(BodyTooLarge):
        connection.data_received(chunk(b"d"))
    with pytest.raises(BodyTooLarge):
        await task
    assert take.taken == [b"abc"]


async def test_a_connection_that_rests_holds_nothing_of_what_was_made() -> None:
    """It may rest for long, and an answer may be large."""
    connection = await asked()
    task = await reading(connection, lambda _: {Taker()})
    connection.data_received(chunk(b"a"))
    made = weakref.ref(next(iter(cast("set[Taker]", await task))))
    del task
    await asyncio.sleep(0)
    assert made() is None


async def test_a_packed_body_is_unpacked_first() -> None:
    """Whoever takes sees what was packed."""
    connection, take = await asked(b"content-encoding: deflate\r\n"), Taker()
    task = await reading(connection, take)
    packed = zlib.compress(b"some words and no more.")
    connection.data_received(chunk(packed[:7]))
    await asyncio.sleep(0)
    connection.data_received(chunk(packed[7:]) + END)
    assert await task == b"some words and no more."


async def test_all_that_is_unpacked_of_one_read_is_given_on() -> None:
    """Though it is unpacked in pieces, and nothing more may come for long."""
    connection, take = await asked(b"content-encoding: deflate\r\n", bytes_max=1_000_000), Taker()
    task = await reading(connection, take)
    connection.data_received(chunk(zlib.compress(b"a" * 3 * UNPACKED_BYTES + b".")))
    async with asyncio.timeout(1.0):
        assert len(cast("bytes", await task)) == 3 * UNPACKED_BYTES + 1


async def test_who_was_cancelled_takes_nothing_more() -> None:
    """Not even before it has heard of it itself."""
    connection, take = await asked(), Taker()
    task = await reading(connection, take)
    task.cancel()
    connection.data_received(chunk(b"a"))
    with pytest.raises(asyncio.CancelledError):
        await task
    connection.data_received(chunk(b"b"))
    assert take.taken == []


class Slow:
    """A loop whose time passes when it is told, for the timers of one connection."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.create_future = asyncio.get_running_loop().create_future

    def time(self) -> float:
        """Return its time."""
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Keep a timer, which nobody cancels."""
        self.due.append((self.now + seconds, callback))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        self.now += seconds
        due, self.due = (
            [each for each in self.due if each[0] <= self.now],
            [each for each in self.due if each[0] > self.now],
        )
        for _, callback in due:
            callback()


async def test_silence_is_counted_from_what_was_taken_last() -> None:
    """Though nobody goes on for what is taken; and it ends the wait."""
    connection, take, loop = await asked(idle_s=10.0), Taker(), Slow()
    connection._stop_silence_timer()
    connection.loop = cast("asyncio.AbstractEventLoop", loop)
    task = await reading(connection, take)
    for _ in range(4):
        loop.pass_time(7.0)
        connection.data_received(chunk(b"a"))
    loop.pass_time(9.0)
    await asyncio.sleep(0)
    assert not task.done()
    loop.pass_time(2.0)
    with pytest.raises(TimeoutError):
        await task
    assert take.taken == [b"a"] * 4
