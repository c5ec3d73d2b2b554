"""A model behind an endpoint: fits the plan to it, writes it in its protocol, posts it, decodes what comes back.

`open_call` is the one way from a plan to a request (adapt, carry, write, edit) and to the decoder that undoes it;
`decode` is the one way from bytes to events. Scripts and the demo model go through both. A network that fails in the
middle becomes a Failed event, so that every stream ends in exactly one Finished or Failed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Protocol, cast
from urllib.parse import quote

import msgspec

from treadle.canon.errors import UpstreamError
from treadle.canon.events import Failed, Finished, ModelEvent, Noted
from treadle.canon.ids import IdSource
from treadle.canon.items import CallItem
from treadle.canon.plan import Plan
from treadle.canon.request import Note
from treadle.telemetry import upstream_request
from treadle.upstream.endpoint import Endpoint, ProtocolName
from treadle.upstream.failure import clean_failure
from treadle.upstream.http import HttpClient
from treadle.upstream.quirks import QuirkProfile, profile_of
from treadle.upstream.quirks.edits import edit_body
from treadle.wire.adapt import Adapted, RestoringDecoder, adapt, check_fidelity
from treadle.wire.carry import Bearer, BearingDecoder, carry_options
from treadle.wire.codec import Decoder
from treadle.wire.dialects.stage import RepairRules, scanning
from treadle.wire.notes import Notes
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


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One model call, ready to be sent: where, what, what was lost in writing it, and who reads the answer."""

    path: str
    body: bytes
    decoder: Decoder
    adapted: Adapted
    notes: tuple[Note, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


class UpstreamModel:
    """One model of one endpoint. `name` is what the endpoint calls it, where that is not what the plan says."""

    def __init__(self, endpoint: Endpoint, client: HttpClient, ids: IdSource, *, name: str = "") -> None:
        self.endpoint = endpoint
        self._client = client
        self._ids = ids
        self.name = name

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Make one model call and yield a batch of events for each read of the network.

        Raises: UpstreamError, before the first batch only; UnsupportedFeature, when a strict plan would lose something.
        """
        call = self._open(plan)
        if plan.is_strict:
            check_fidelity(call.notes)
        async with aclosing(decode(self._post(call, run_id), call.decoder, call.notes)) as batches:
            async for batch in batches:
                if isinstance(batch[-1], Failed):
                    batch[-1] = Failed(error=clean_failure(self.endpoint, batch[-1].error))
                yield batch

    def _open(self, plan: Plan) -> Call:
        sent = msgspec.structs.replace(plan, model=self.name) if self.name else plan
        profile = self.endpoint.profile(sent.model)
        return open_call(self.endpoint.protocol, sent, self._ids, self.endpoint.name, profile, self.endpoint.repair)

    async def _post(self, call: Call, run_id: str) -> AsyncGenerator[bytes, None]:
        async with self._client.post(self.endpoint, call.path, call.body, call.headers, run_id) as stream:
            upstream_request.set(stream.info.request_id)
            log.debug(
                "run %s: upstream %s answered %d, its request id %s",
                run_id,
                self.endpoint.name,
                stream.info.status,
                stream.info.request_id or "-",
            )
            while chunk := await stream.read():
                yield chunk


def open_call(
    protocol: ProtocolName,
    plan: Plan,
    ids: IdSource,
    provider: str,
    profile: QuirkProfile | None = None,
    repair: RepairRules | None = None,
) -> Call:
    """Write the plan as a request of this protocol and of an upstream with this profile.

    With `repair` rules, calls that the model writes as text are looked for in the answer.
    """
    profile = profile or profile_of(protocol, "")
    adapted = adapt(plan, profile.traits)
    notes = Notes()
    fitted = msgspec.structs.replace(adapted.plan, options=carry_options(adapted.plan.options, protocol, notes))
    codec = UPSTREAMS[protocol]
    written = edit_body(codec.write_request(fitted, provider=provider), profile.edits)
    make = cast("DecoderMaker", codec.decoder)
    decoder = make(
        ids,
        provider=provider,
        model=plan.model,
        arguments_bytes_max=ARGUMENTS_BYTES_MAX,
        taken_call_ids=_call_ids(plan) | _call_ids(adapted.plan),
    )
    restored = RestoringDecoder(scanning(decoder, adapted.plan, repair), adapted.restorer)
    return Call(
        # Only Gemini names its model in the path; the paths of the others hold no braces.
        path=codec.path.format(model=quote(plan.model.removeprefix("models/"), safe="")),
        body=written.body,
        decoder=_carrying(restored, plan.options.extra_protocol, protocol),
        adapted=adapted,
        notes=(*adapted.notes, *notes.all(), *written.notes),
        headers=written.headers,
    )


def _carrying(decoder: Decoder, client: str, protocol: ProtocolName) -> Decoder:
    """Return a decoder for the client's protocol; who speaks none is shown everything as it is."""
    return decoder if client in ("", protocol) else BearingDecoder(decoder, Bearer(client))


def _call_ids(plan: Plan) -> frozenset[str]:
    return frozenset(item.call_id for item in plan.items if isinstance(item, CallItem))


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
