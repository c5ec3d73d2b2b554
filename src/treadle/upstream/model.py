"""A model behind an endpoint: fits the plan to it, writes it in its protocol, posts it, decodes what comes back.

`open_call` is the one way from a plan to a request (adapt, carry, write, edit) and to the decoder that undoes it;
`decode` is the one way from bytes to events. Scripts and the demo model go through both. A network that fails in the
middle becomes a Failed event, so that every stream ends in exactly one Finished or Failed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, cast
from urllib.parse import quote

import msgspec

from treadle.canon.errors import ErrorInfo, UpstreamError
from treadle.canon.events import Batches, Failed, Finished, ModelEvent, Noted
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

    def stream(self, plan: Plan, run_id: str) -> Batches:
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

    def stream(self, plan: Plan, run_id: str) -> "Answering":
        """Make one model call and yield a batch of events for each read of the network.

        Raises: UpstreamError, before the first batch only; UnsupportedFeature, when a strict plan would lose something.
        """
        return Answering(partial(self._begin, plan, run_id))

    async def _begin(self, plan: Plan, run_id: str) -> "Begun":
        call = self._open(plan)
        if plan.is_strict:
            check_fidelity(call.notes)
        stream = await self._client.post(self.endpoint, call.path, call.body, call.headers, run_id)
        info = stream.info
        upstream_request.set(info.request_id)
        if log.isEnabledFor(logging.DEBUG):
            said = (run_id, self.endpoint.name, info.status, info.request_id or "-")
            log.debug("run %s: upstream %s answered %d, its request id %s", *said)
        return Begun(stream, call.decoder, call.notes, partial(clean_failure, self.endpoint))

    def _open(self, plan: Plan) -> Call:
        sent = msgspec.structs.replace(plan, model=self.name) if self.name else plan
        profile = self.endpoint.profile(sent.model)
        return open_call(self.endpoint.protocol, sent, self._ids, self.endpoint.name, profile, self.endpoint.repair)


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
    return frozenset([item.call_id for item in plan.items if type(item) is CallItem])


class Source(Protocol):
    """Where the bytes of an answer come from."""

    async def read(self) -> bytes:
        """Return what has arrived, waiting for at least one byte; nothing at the end.

        Raises: UpstreamError.
        """
        ...

    @property
    def is_over(self) -> bool:
        """Tell whether it is known that nothing is left to read."""
        ...

    async def close(self) -> None:
        """Give it up, whether or not it was read to its end."""
        ...


class Begun(NamedTuple):
    """An answer that has begun: its bytes, who reads them, what was lost in asking, how its failures are worded."""

    source: Source
    decoder: Decoder
    notes: Sequence[Note] = ()
    clean: Callable[[ErrorInfo], ErrorInfo] | None = None


class Answering:
    """The events of one model call, the notes before them. Fits `Batches`; closing it closes the bytes.

    Every event passes here alone, so this is no generator: a chain of them costs more than to decode what they pass on.
    """

    __slots__ = ("_begin", "_begun", "_has_told", "_is_over", "_last")

    def __init__(self, begin: Callable[[], Awaitable[Begun]]) -> None:
        self._begin = begin
        self._begun: Begun | None = None
        self._has_told = self._is_over = False
        self._last: ModelEvent | None = None

    def __aiter__(self) -> "Answering":
        """Return itself."""
        return self

    async def __anext__(self) -> list[ModelEvent]:
        """Return the events of the next bytes.

        Raises: UpstreamError, before the first batch only.
        """
        if self._is_over:
            await self.aclose()
            raise StopAsyncIteration
        failure: UpstreamError | None = None
        begun = self._begun
        try:
            if begun is None:
                begun = self._begun = await self._begin()
            while chunk := await begun.source.read():
                if events := begun.decoder.feed(chunk):
                    return self._tell(begun, events)
        except UpstreamError as error:
            if not self._has_told:
                await self.aclose()
                raise
            failure = error
        assert begun is not None, "what has not begun has told nothing"
        return self._tell(begun, _ending(begun.decoder, failure))

    def _tell(self, begun: Begun, events: list[ModelEvent]) -> list[ModelEvent]:
        last = events[-1]
        if type(last) is Finished or type(last) is Failed:
            self._is_over = True
            if type(last) is Failed and begun.clean is not None:
                last = events[-1] = Failed(error=begun.clean(last.error))
            self._last = last
        if self._has_told or not begun.notes:
            self._has_told = True
            return events
        self._has_told = True
        return [*(Noted(note=note) for note in begun.notes), *events]

    async def aclose(self) -> None:
        """End the call; what is left of a good answer is read, so that its connection can be used again."""
        self._is_over = True
        begun, self._begun = self._begun, None
        if begun is None:
            return
        try:
            if isinstance(self._last, Finished) and not begun.source.is_over:
                await _drain(begun.source)
        finally:
            await begun.source.close()


class _Chunks:
    """Bytes that a generator makes: whether it makes more is found out by asking it."""

    is_over = False

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks

    async def read(self) -> bytes:
        """Return the next of them."""
        return await anext(self._chunks, b"")

    async def close(self) -> None:
        """Let nothing more be made."""
        await self._chunks.aclose()


def decode(chunks: AsyncGenerator[bytes, None], decoder: Decoder, notes: Sequence[Note] = ()) -> Answering:
    """Yield the events of each chunk, the notes before them; closing this closes the chunks.

    Raises: UpstreamError, before the first batch only.
    """

    async def begin() -> Begun:
        return Begun(_Chunks(chunks), decoder, notes)

    return Answering(begin)


def _ending(decoder: Decoder, failure: UpstreamError | None) -> list[ModelEvent]:
    """Close the stream: a cut after the finish reason harms nothing, any other is told as what the network did."""
    events = decoder.finish()
    assert isinstance(events[-1], Finished | Failed), "a decoder's finish ends in Finished or Failed"
    if failure is not None and isinstance(events[-1], Failed):
        events[-1] = Failed(error=failure.info)
    return events


async def _drain(source: Source) -> None:
    """Read on to the end of an answer, whether or not anybody still listens."""
    with suppress(UpstreamError, TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while await source.read():
                pass
