"""The load generator believes no answer that it has not seen whole, and the upstream answers what is asked."""

import asyncio
import json
from itertools import pairwise

import pytest
from bench.rig import upstream
from bench.rig.driver import Job, Reader, joined, shares, work
from bench.rig.replies import DONE, STREAM_HEAD, document, reply, text_pieces, text_stream
from bench.rig.upstream import PACED_S, PLACE_S, PLACES, Upstream

CUTS = (1, 2, 3, 7, 64, 100_000)


def cut(data: bytes, size: int) -> list[bytes]:
    """Cut bytes as a network might."""
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.fixture
async def port():
    """An upstream in this process."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def job(port: int, model: str, **fields: object) -> Job:
    """A few requests for a model."""
    body = json.dumps({"model": model, "stream": fields.pop("stream", True)})
    return Job({"mode": "closed", "port": port, "path": "/v1/x", "body": body, "seconds": 5.0, "count": 4, **fields})


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("answer", [text_stream(5), document("200 OK", {"text": DONE})], ids=["chunked", "length"])
def test_an_answer_is_whole_only_with_its_last_byte(answer: bytes, size: int) -> None:
    """Not one piece earlier, however it is cut."""
    reader = Reader()
    *before, last = cut(answer, size)
    assert [reader.feed(piece) for piece in before] == [False] * len(before)
    assert reader.feed(last)
    assert reader.status == 200
    assert DONE.encode() in reader.body


def test_a_closing_answer_is_not_asked_again_on_the_same_connection() -> None:
    """`connection: close` is heard."""
    reader = Reader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n")
    assert not reader.is_kept


async def test_a_job_counts_its_requests_and_their_events(port: int) -> None:
    """Two connections share the requests of one job."""
    done = await work(job(port, "bench-20", connections=2, events_min=20))
    assert done["count"] == 4
    assert 0 < done["first_s"]["p50"] <= done["took_s"]["p50"] <= done["took_s"]["p99"] <= done["wall_s"]


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        ("another", {}, "status 404"),
        ("bench-3", {"events_min": 50}, "status 200"),
    ],
    ids=["refused", "too few events"],
)
async def test_a_wrong_answer_is_an_error_and_no_fast_number(port: int, model: str, fields: dict, said: str) -> None:
    """What was not answered as asked is not counted."""
    assert said in (await work(job(port, model, **fields)))["error"]


def rechunked(answer: bytes, size: int) -> bytes:
    """The same answer as a proxy might cut its chunks."""
    text = joined(answer.removeprefix(STREAM_HEAD))
    return STREAM_HEAD + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in [*cut(text, size), b""])


@pytest.mark.parametrize("size", CUTS)
async def test_an_answer_is_right_wherever_a_proxy_cuts_its_chunks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of the mark, or of what begins an event."""
    answer = rechunked(text_stream(5), size)
    monkeypatch.setattr(upstream, "reply", lambda _: answer)
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    done = await work(job(port, "bench-5", events_min=5))
    short = await work(job(port, "bench-5", events_min=50))
    server.close()
    assert done["count"] == 4
    assert "status 200" in short["error"]


async def test_a_burst_is_written_event_by_event_in_turn(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event is one write to the socket; of two streams, one event each."""
    written: list[tuple[int, bytes]] = []
    once = upstream.write_now

    def noted(descriptor: int, piece: bytes) -> int:
        written.append((descriptor, piece))
        return once(descriptor, piece)

    monkeypatch.setattr(upstream, "write_now", noted)
    done = await work(job(port, "bench-burst-20", connections=2, count=2, events_min=20))
    assert done["count"] == 2
    streams = {each: [piece for where, piece in written if where == each] for each, _ in written}
    assert list(streams.values()) == [list(text_pieces(20))] * 2
    turns = sum(one != other for (one, _), (other, _) in pairwise(written))
    assert turns > len(written) / 2


@pytest.mark.parametrize("taken", [0, 3])
async def test_a_burst_goes_on_by_the_transport_where_the_socket_has_no_room(
    port: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost or sent twice, whether a piece was taken in part or not at all."""
    once = upstream.write_now

    def full(descriptor: int, piece: bytes) -> int:
        return once(descriptor, piece[:taken] if b"word4 " in piece else piece)

    monkeypatch.setattr(upstream, "write_now", full)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"model": "bench-burst-20"}'
    writer.write(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    wanted = text_stream(20)
    assert await asyncio.wait_for(reader.readexactly(len(wanted)), 10.0) == wanted
    writer.close()
    await writer.wait_closed()


def test_paced_streams_are_spread_over_the_interval() -> None:
    """Any twenty that begin together have a millisecond of it each, so neither many nor few come in one rush."""
    places = [next(Upstream._places) for _ in range(PLACES)]
    assert sorted(places) == list(range(PLACES))
    interval = round(PACED_S / PLACE_S)
    for at in range(PLACES - interval):
        assert len({each % interval for each in places[at : at + interval]}) == interval


async def test_nobody_there_is_an_error() -> None:
    """A port that nobody listens on gives no figures."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    closed = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert "error" in await work(job(closed, "bench-1"))


async def test_requests_at_a_steady_rate_are_all_made(port: int) -> None:
    """The pace is kept whether or not the last one was answered."""
    done = await work(job(port, "bench-plain", mode="paced", rate=200.0, seconds=0.1, count=10, stream=False))
    assert done["count"] == 10


async def test_paced_events_say_how_late_they_are(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event carries the time of its writing."""
    monkeypatch.setattr("bench.rig.upstream.PACED_EVENTS", 3)
    monkeypatch.setattr("bench.rig.upstream.THINKS_S", 0.0)
    done = await work(job(port, "bench-paced", stamped=True, count=1))
    assert 0 < done["late_s"]["p50"] <= done["late_s"]["p99"] < done["wall_s"]


@pytest.mark.parametrize("size", CUTS)
async def test_the_upstream_reads_requests_however_they_are_cut(port: int, size: int) -> None:
    """Two requests in one go, one with a length and one in chunks, get two answers."""
    body = b'{"model": "bench-plain"}'
    first = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    second = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in cut(first + second, size):
        writer.write(piece)
        await writer.drain()
    wanted = reply(body) * 2
    assert await asyncio.wait_for(reader.readexactly(len(wanted)), 10.0) == wanted
    writer.close()
    await writer.wait_closed()


def test_shares_of_nothing_are_nothing() -> None:
    """A job without answers has no latency, and does not fail over it."""
    assert shares([]) == {"p50": 0.0, "p99": 0.0}
    assert shares([float(n) for n in range(1, 101)]) == {"p50": 51.0, "p99": 100.0}
