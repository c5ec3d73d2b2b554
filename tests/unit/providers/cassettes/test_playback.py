"""Playing: the right answer to each request, as it was cut and as it ended, and nothing else."""

import pytest

from treadle.core.errors import BrokenStream
from treadle.http.client_errors import ConnectionBroken
from treadle.providers.cassettes.file_format import (
    Call,
    Cassette,
    CassetteEnd,
    CassetteRequest,
    CassetteResponse,
    Chunk,
    Header,
    How,
)
from treadle.providers.cassettes.playback import Player
from treadle.providers.cassettes.recorder import Secrets
from treadle.providers.provider_endpoint import Endpoint, Secret

HEADER = Header(version=1, upstream="up", protocol="chat", base_url="http://up.invalid/v1")


def call(body: str, *chunks: str, how: How = "eof", path: str = "/chat") -> Call:
    """A recorded call."""
    return Call(
        asked=CassetteRequest(path=path, text=body),
        answered=CassetteResponse(
            status=200, after_s=1.0, headers={"Content-Type": "text/event-stream; charset=utf-8"}
        ),
        chunks=tuple(Chunk(after_s=0.5, text=chunk) for chunk in chunks),
        ended=CassetteEnd(how=how, after_s=0.25),
    )


def player(*calls: Call, **fields: object) -> Player:
    """A player of these calls."""
    return Player(Cassette(header=HEADER, calls=calls), **fields)  # type: ignore[arg-type]


async def played(tape: Player, body: bytes, path: str = "/chat") -> list[bytes]:
    """Ask and read to the end."""
    answer = await tape.send(path, body)
    chunks: list[bytes] = []
    while chunk := await answer.content.readany():
        chunks.append(chunk)
    return chunks


async def test_a_request_is_found_by_what_it_says_and_not_by_how_it_is_written() -> None:
    """Spaces and the order of keys do not count; chunks come as they were cut."""
    tape = player(call('{"a":1,"b":2}', "x", "yz"), call('{"a":2}', "2"))
    assert await played(tape, b'{"a": 2}') == [b"2"]
    assert await played(tape, b'{ "b":2, "a":1 }') == [b"x", b"yz"]
    assert tape.left == 0


async def test_the_head_is_as_recorded() -> None:
    """Status and headers, found by small letters; the type without its parameters."""
    answer = await player(call("{}")).send("/chat", b"{}")
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_equal_requests_get_their_answers_in_order_and_no_more() -> None:
    """The third asks for what was never recorded."""
    tape = player(call("{}", "first"), call("{}", "second"))
    assert [await played(tape, b"{}"), await played(tape, b"{}")] == [[b"first"], [b"second"]]
    with pytest.raises(BrokenStream, match="recorded 2 times and has been asked once more") as caught:
        await played(tape, b"{}")
    assert (caught.value.info.code, caught.value.info.status, caught.value.info.retryable) == (
        "cassette_mismatch",
        502,
        False,
    )


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/chat", b'{"a":3}', "differs from call 2 at $.a: recorded 2, asked 3"),
        ("/other", b'{"a":2}', "goes to /other, call 2 to /chat"),
    ],
)
async def test_a_mismatch_names_the_difference_to_what_was_expected_next(path: str, body: bytes, said: str) -> None:
    """Not to what has been played already."""
    tape = player(call('{"a":1}'), call('{"a":2}'))
    await played(tape, b'{"a":1}')
    with pytest.raises(BrokenStream) as caught:
        await played(tape, body, path)
    assert said in caught.value.message
    assert caught.value.info.code == "cassette_mismatch"


async def test_a_tape_that_is_over_says_so() -> None:
    """Nothing is left to compare with."""
    tape = player(call('{"a":1}'))
    await played(tape, b'{"a":1}')
    with pytest.raises(BrokenStream, match="all 1 calls have been played"):
        await played(tape, b'{"a":2}')


@pytest.mark.parametrize(("how", "error"), [("reset", ConnectionBroken), ("timeout", TimeoutError)])
async def test_it_ends_as_the_network_ended(how: How, error: type[Exception]) -> None:
    """After all the chunks that came before."""
    answer = await player(call("{}", "x", how=how)).send("/chat", b"{}")
    assert await answer.content.readany() == b"x"
    with pytest.raises(error):
        await answer.content.readany()


@pytest.mark.parametrize(("how", "error"), [("refused", ConnectionBroken), ("timeout", TimeoutError)])
async def test_a_call_that_was_never_answered_is_not_answered(how: How, error: type[Exception]) -> None:
    """It fails before there is a head."""
    silent = Call(asked=CassetteRequest(path="/chat", text="{}"), ended=CassetteEnd(how=how))
    with pytest.raises(error):
        await player(silent).send("/chat", b"{}")


@pytest.mark.parametrize(("speed", "pauses"), [(0.0, []), (1.0, [1.0, 0.5, 0.25]), (2.0, [0.5, 0.25, 0.125])])
async def test_the_pauses_are_as_fast_as_wanted(speed: float, pauses: list[float]) -> None:
    """None at all unless asked for."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await played(player(call("{}", "x"), speed=speed, sleep=sleep), b"{}")
    assert slept == pauses


async def test_a_secret_in_a_request_finds_its_blank() -> None:
    """What is recorded has no key in it; the request that is asked has."""
    endpoint = Endpoint(name="up", base_url="http://up.invalid/v1", key=Secret("sk-very-secret-0001"))
    tape = player(call('{"say":"[redacted]"}', "x"), secrets=Secrets([endpoint]))
    assert await played(tape, b'{"say":"sk-very-secret-0001"}') == [b"x"]


async def test_a_player_that_is_closed_plays_no_more() -> None:
    """Leaving early leaves the rest unplayed."""
    answer = await player(call("{}", "x", "y")).send("/chat", b"{}")
    await answer.content.readany()
    answer.close()
    assert await answer.content.readany() == b""
