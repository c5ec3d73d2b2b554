"""The client with tapes in it: who is asked, and that playing can be recorded too."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from treadle.core.errors import BrokenStream, UpstreamError, UpstreamStatus, UpstreamTimeout
from treadle.providers.cassettes import Cassette, CassetteClient, Player, Recorder, Secrets, load_cassette
from treadle.providers.cassettes.file_format import (
    Call,
    CassetteEnd,
    CassetteRequest,
    CassetteResponse,
    Chunk,
    Header,
    How,
)
from treadle.providers.provider_endpoint import Endpoint

ENDPOINT = Endpoint(name="up", base_url="http://127.0.0.1:9/v1", connect_s=2.0)
HEADER = Header(version=1, upstream="up", protocol="chat", base_url=ENDPOINT.base_url)


def taped(status: int = 200, text: str = "hi", how: How = "eof") -> Cassette:
    """A cassette of one call."""
    answered = CassetteResponse(status=status, headers={"content-type": "application/json", "retry-after": "7"})
    call = Call(
        asked=CassetteRequest(path="/x", text='{"model":"m"}'),
        answered=answered,
        chunks=(Chunk(text=text),),
        ended=CassetteEnd(how=how),
    )
    return Cassette(header=HEADER, calls=(call,))


def client(cassette: Cassette | None, folder: Path | None = None) -> CassetteClient:
    """A client that plays this, and records if there is a folder."""
    players = {} if cassette is None else {"up": Player(cassette)}
    return CassetteClient(players=players, recorder=None if folder is None else Recorder(folder, Secrets()))


async def ask(taped_client: CassetteClient) -> bytes:
    """Post and read everything."""
    body = b""
    try:
        stream = await taped_client.post(ENDPOINT, "/x", b'{"model":"m"}', (), "run_1")
        try:
            while chunk := await stream.read_into(bytes):
                body += chunk
        except OSError as error:
            raise stream.failure(error) from None
        finally:
            await stream.close()
    finally:
        await taped_client.close()
    return body


async def test_a_played_answer_is_read_like_any_other() -> None:
    """Through the same stream with the same bounds."""
    assert await ask(client(taped())) == b"hi"


async def test_a_played_refusal_is_the_upstreams_refusal() -> None:
    """With its status, its words and the time to wait."""
    with pytest.raises(UpstreamStatus, match="answered 429: slow down") as caught:
        await ask(client(taped(429, '{"error":{"message":"slow down"}}')))
    assert caught.value.retry_after == 7


@pytest.mark.parametrize(("how", "error"), [("reset", BrokenStream), ("timeout", UpstreamTimeout)])
async def test_a_played_failure_is_the_networks_failure(how: How, error: type[UpstreamError]) -> None:
    """Said in the same words."""
    with pytest.raises(error, match="upstream 'up'"):
        await ask(client(taped(how=how)))


async def test_what_is_played_can_be_recorded(tmp_path: Path) -> None:
    """A copy says the same."""
    assert await ask(client(taped(), tmp_path)) == b"hi"
    (call,) = load_cassette(tmp_path).calls
    assert (call.chunks[0].text, call.ended.how) == ("hi", "eof")


async def test_a_host_that_nobody_answers_at_is_recorded_as_that(tmp_path: Path) -> None:
    """There is a request, no answer, and an end."""
    with pytest.raises(UpstreamError):
        await ask(client(None, tmp_path))
    (call,) = load_cassette(tmp_path).calls
    assert (call.answered, call.ended.how) == (None, "refused")


async def test_a_call_that_is_given_up_before_it_is_answered_is_recorded_as_that(tmp_path: Path) -> None:
    """A client that leaves cancels the request while the upstream still thinks."""
    asked = asyncio.Event()

    async def never(seconds: float) -> None:
        asked.set()
        await asyncio.Event().wait()

    slow = Cassette(header=HEADER, calls=tuple(_late(call) for call in taped().calls))
    waiting = CassetteClient(
        players={"up": Player(slow, speed=1.0, sleep=never)}, recorder=Recorder(tmp_path, Secrets())
    )
    task = asyncio.create_task(ask(waiting))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (call,) = load_cassette(tmp_path).calls
    assert (call.answered, call.ended.how) == (None, "closed")


def _late(call: Call) -> Call:
    """Let a call be answered only after a while."""
    assert call.answered is not None
    return msgspec.structs.replace(call, answered=msgspec.structs.replace(call.answered, after_s=5.0))


async def test_a_cassette_lists_the_models_it_has() -> None:
    """So that clients find them."""
    listed = await client(taped()).get(ENDPOINT, "/models", 1.0)
    assert [each["id"] for each in msgspec.json.decode(listed)["data"]] == ["m"]
