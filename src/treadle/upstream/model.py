"""A model behind an endpoint: writes the plan in the endpoint's protocol, posts it, decodes what comes back.

`decode` is the one way from bytes to events; scripts and the demo model go through it too. It turns a network that
fails in the middle into a Failed event, so that every stream ends in exactly one Finished or Failed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Protocol, cast

import msgspec

from treadle.canon.errors import UpstreamError
from treadle.canon.events import Failed, Finished, ModelEvent, Noted
from treadle.canon.ids import IdSource
from treadle.canon.items import CallItem
from treadle.canon.plan import Plan
from treadle.canon.request import Note
from treadle.upstream.endpoint import Endpoint, ProtocolName
from treadle.upstream.http import HttpClient
from treadle.wire.codec import Decoder, Written
from treadle.wire.protocols import UPSTREAMS

DRAIN_S = 0.2
"""How long to wait for the end of a body whose stream has ended: only then can its connection be used again."""

ARGUMENTS_BYTES_MAX = 4_194_304
"""What is held of one call's arguments at most. The limit of a run is lower and becomes a result, not a failure."""

log = logging.getLogger(__name__)


class Model(Protocol):
    """What fits the engine's port: makes one model call and yields its events."""

    def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Yield the events in batches, the last of them Finished or Failed."""
        ...


class DecoderMaker(Protocol):
    """What every protocol's decoder takes at birth: whose words it reads, its bound, and the ids already given."""

    def __call__(
        self, ids: IdSource, *, provider: str, model: str, arguments_bytes_max: int, taken_call_ids: frozenset[str]
    ) -> Decoder:
        """Return a decoder for one model call."""
        ...


class UpstreamModel:
    """One model of one endpoint. `name` is what the endpoint calls it, where that is not what the plan says."""

    def __init__(self, endpoint: Endpoint, client: HttpClient, ids: IdSource, *, name: str = "") -> None:
        self.endpoint = endpoint
        self._client = client
        self._ids = ids
        self.name = name

    def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Make one model call and yield a batch of events for each read of the network.

        Raises: UpstreamError, before the first batch only.
        """
        sent = msgspec.structs.replace(plan, model=self.name) if self.name else plan
        written, decoder = open_call(self.endpoint.protocol, sent, self._ids, self.endpoint.name)
        return decode(self._post(written.body, run_id), decoder, written.notes)

    async def _post(self, body: bytes, run_id: str) -> AsyncGenerator[bytes, None]:
        async with self._client.post(self.endpoint, UPSTREAMS[self.endpoint.protocol].path, body) as stream:
            log.debug(
                "run %s: upstream %s answered %d, its request id %s",
                run_id,
                self.endpoint.name,
                stream.info.status,
                stream.info.request_id or "-",
            )
            while chunk := await stream.read():
                yield chunk


def open_call(protocol: ProtocolName, plan: Plan, ids: IdSource, provider: str) -> tuple[Written, Decoder]:
    """Write the plan as this protocol's request, and return the decoder for what is answered to it."""
    codec = UPSTREAMS[protocol]
    taken = frozenset(item.call_id for item in plan.items if isinstance(item, CallItem))
    make = cast("DecoderMaker", codec.decoder)
    decoder = make(
        ids,
        provider=provider,
        model=plan.model,
        arguments_bytes_max=ARGUMENTS_BYTES_MAX,
        taken_call_ids=taken,
    )
    return codec.write_request(plan), decoder


async def decode(
    chunks: AsyncGenerator[bytes, None], decoder: Decoder, notes: Sequence[Note] = ()
) -> AsyncGenerator[list[ModelEvent], None]:
    """Yield the events of each chunk, the notes before them; closing this closes the chunks.

    Raises: UpstreamError, before the first batch only.
    """
    waiting: list[ModelEvent] = [Noted(note=note) for note in notes]
    is_begun = False
    failure: UpstreamError | None = None
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                events = decoder.feed(chunk)
                if not events:
                    continue
                is_begun = True
                batch, waiting = waiting + events, []
                if not _is_last(events):
                    yield batch
                    continue
                try:
                    yield batch
                finally:
                    await _drain(chunks, events[-1])
                return
        except UpstreamError as error:
            if not is_begun:
                raise
            failure = error
        yield waiting + _ending(decoder, failure)


def _ending(decoder: Decoder, failure: UpstreamError | None) -> list[ModelEvent]:
    """Close the stream: a cut after the finish reason harms nothing, any other is told as what the network did."""
    events = decoder.finish()
    assert _is_last(events), "a decoder's finish ends in Finished or Failed"
    if failure is not None and isinstance(events[-1], Failed):
        events[-1] = Failed(error=failure.info)
    return events


def _is_last(events: list[ModelEvent]) -> bool:
    return bool(events) and isinstance(events[-1], Finished | Failed)


async def _drain(chunks: AsyncGenerator[bytes, None], last: ModelEvent) -> None:
    """Read on to the end of a good answer, whether or not anybody still listens; a failed one is just closed."""
    if isinstance(last, Failed):
        return
    with suppress(UpstreamError, TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass
