"""A model behind an endpoint: fits the plan to it, writes it in its protocol, posts it, decodes what comes back.

`open_call` is the one way from a plan to a request (adapt, carry, write, edit) and to the decoder that undoes it;
`decode` is the one way from bytes to events. Scripts and the demo model go through both. A network that fails in the
middle becomes a Failed event, so that every stream ends in exactly one Finished or Failed.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn, Protocol, Self
from urllib.parse import quote

import msgspec

from treadle.core.errors import ErrorInfo, UpstreamError
from treadle.core.events import Batches, Failed, Finished, LiveBatches, ModelEvent, Noted
from treadle.core.ids import IdSource
from treadle.core.plan import Plan
from treadle.core.request import Note
from treadle.http.client_connection import BytesConsumer
from treadle.protocols.codec_interfaces import Decoder
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName
from treadle.protocols.text_calls.text_call_recovery import RepairRules, scanner_of
from treadle.protocols.translation.adapt_plan import Adapted, adapt
from treadle.protocols.translation.fidelity_report import check_fidelity
from treadle.protocols.translation.foreign_answer_fields import Bearer, BearingDecoder
from treadle.protocols.translation.request_options import carry_options
from treadle.protocols.translation.restore_events import RestoringDecoder
from treadle.protocols.translation_notes import Notes
from treadle.providers.error_mapping import clean_failure
from treadle.providers.provider_client import HttpClient, drain, read_into
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.quirk_edits import NO_EDITS, edit_body
from treadle.providers.quirk_table import QuirkProfile, profile_of
from treadle.telemetry import upstream_request


class AnswerRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is read: which calls are looked for in its text, if any are, and how much it may hold."""

    repair: RepairRules | None = None
    bounds: AnswerBounds = AnswerBounds(text_bytes_max=16_777_216, arguments_bytes_max=4_194_304)


_USUAL = AnswerRules()
"""What is held of one call's arguments at most. The limit of a run is lower and becomes a result, not a failure."""

log = logging.getLogger(__name__)

_ENDS = frozenset({Finished, Failed})


class Model(Protocol):
    """What fits the engine's port: makes one model call and yields its events."""

    def stream(self, plan: Plan, run_id: str) -> Batches:
        """Yield the events in batches, the last of them Finished or Failed."""
        ...


class UpstreamCall(msgspec.Struct, frozen=True, kw_only=True):
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
        self._profile = endpoint.profile(name) if name else None
        self._rules = AnswerRules(repair=endpoint.repair, bounds=endpoint.bounds)
        self._clean = partial(clean_failure, endpoint)

    def stream(self, plan: Plan, run_id: str) -> "AnswerStream":
        """Make one model call and yield a batch of events for each read of the network.

        Raises: UpstreamError, before the first batch only; UnsupportedFeature, when a strict plan would lose something.
        """
        return Unguarded(partial(self.begin, plan, run_id))

    async def begin(self, plan: Plan, run_id: str) -> "StartedCall":
        """Make one model call and return its answer, of which nothing is read yet.

        Raises: UpstreamError, UnsupportedFeature.
        """
        endpoint = self.endpoint
        if self.name and self.name != plan.model:
            plan = msgspec.structs.replace(plan, model=self.name)
        profile = self._profile or endpoint.profile(plan.model)
        call = open_call(
            endpoint.protocol,
            plan,
            self._ids.of(run_id, plan.fingerprint),
            endpoint.name,
            profile,
            self._rules,
        )
        if plan.is_strict:
            check_fidelity(call.notes)
        stream = await self._client.post(endpoint, call.path, call.body, call.headers, run_id)
        upstream_request.set(stream.request_id)
        if log.isEnabledFor(logging.DEBUG):
            said = (run_id, endpoint.name, stream.status, stream.request_id or "-")
            log.debug("run %s: upstream %s answered %d, its request id %s", *said)
        return StartedCall(stream, call.decoder, call.notes, self._clean)


_CODECS = {name: row.codec for name, row in PROTOCOLS.items()}
"""Imported here and now, so that no request waits for that."""


def open_call(
    protocol: ProtocolName,
    plan: Plan,
    ids: IdSource,
    provider: str,
    profile: QuirkProfile | None = None,
    rules: AnswerRules = _USUAL,
) -> UpstreamCall:
    """Write the plan as a request of this protocol and of an upstream with this profile."""
    profile = profile or profile_of(protocol, "")
    adapted = adapt(plan, profile.traits)
    fitted, notes = adapted.plan, adapted.notes
    if fitted.options.extra or fitted.options.betas:
        lost = Notes()
        options = carry_options(fitted.options, protocol, lost)
        if options is not fitted.options:
            fitted = msgspec.structs.replace(fitted, options=options)
        notes += lost.all()
    written = _CODECS[protocol].write_request(fitted, provider=provider)
    if profile.edits is not NO_EDITS:
        written = edit_body(written, profile.edits)
    decoder = _CODECS[protocol].decoder(
        ids,
        provider=provider,
        model=plan.model,
        arguments_bytes_max=rules.bounds.arguments_bytes_max,
        text_bytes_max=rules.bounds.text_bytes_max,
        taken_call_ids=adapted.call_ids,
    )
    # An upstream without a choice `none` is offered no tools where none may be called, and their names still count.
    scanner = scanner_of(plan if plan.is_closing else adapted.plan, rules.repair)
    restored: Decoder = RestoringDecoder(decoder, adapted.restorer, scanner)
    client = plan.options.extra_protocol
    if client not in ("", protocol):
        # It reads the answer in its own protocol; who speaks none is shown everything as it is.
        restored = BearingDecoder(restored, Bearer(client))
    return UpstreamCall(
        path=_path(protocol, plan.model),
        body=written.body,
        decoder=restored,
        adapted=adapted,
        notes=notes + written.notes,
        headers=written.headers,
    )


@lru_cache(maxsize=256)
def _path(protocol: ProtocolName, model: str) -> str:
    """Return where a model is asked. Only Gemini names it in the path; the paths of the others hold no braces."""
    return PROTOCOLS[protocol].upstream_path.format(model=quote(model.removeprefix("models/"), safe=""))


class ReplySource(Protocol):
    """Where the bytes of an answer come from."""

    @property
    def read_into(self) -> Callable[[BytesConsumer], Awaitable[Any]]:
        """Return what gives the bytes to its argument until that makes something of them; None at the end.

        Raises: UpstreamError, or OSError as the network does.
        """
        ...

    def failure(self, error: OSError) -> UpstreamError:
        """Say what it means that the network failed."""
        ...

    @property
    def end(self) -> Callable[[], Awaitable[None]]:
        """Return what closes an answer that was understood to its end: the rest is passed over."""
        ...

    async def close(self) -> None:
        """Give it up, whether or not it was read to its end."""
        ...


class StartedCall(msgspec.Struct, frozen=True):
    """An answer that has begun: its bytes, who reads them, what was lost in asking, how its failures are worded."""

    source: ReplySource
    decoder: Decoder
    notes: Sequence[Note] = ()
    clean: Callable[[ErrorInfo], ErrorInfo] | None = None


class AnswerStream(LiveBatches, ABC):
    """The events of one model call, the notes before them. Fits `Batches`; closing it closes the bytes.

    Most events come alone, and are told in the turn of their bytes (`_take`): to wake a task and a chain of generators
    for each costs more than to decode it. How an answer is got to begin is said by `_start`.
    """

    _begun: StartedCall | None = None
    _is_over: bool = False
    _is_leaving: bool = False
    _last: ModelEvent | None = None

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> list[ModelEvent]:
        """Return the events of the next bytes.

        Raises: UpstreamError, before the first batch only.
        """
        if self._is_over:
            await self.aclose()
            raise StopAsyncIteration
        begun = self._begun
        if begun is None:
            return await self._start()
        failure: UpstreamError | None = None
        events: list[ModelEvent] | None = None
        try:
            events = await begun.source.read_into(self._take)
        except UpstreamError as error:
            failure = error
        except OSError as error:
            failure = begun.source.failure(error)
        if events is None:
            events = _ending(begun.decoder, failure)
        if type(events[-1]) in _ENDS:
            self._end(begun, events)
        return events

    def _take(self, data: bytes) -> list[ModelEvent] | None:
        """Return the events of these bytes, unless there are none or somebody hears them at once."""
        assert self._begun is not None
        events = self._begun.decoder.feed(data)
        if not events or (self.on_batch is not None and self.on_batch(events)):
            return None
        return events

    async def aclose(self) -> None:
        """End the call; what is left of a good answer is read, so that its connection can be used again."""
        self._is_over = True
        await self._leave(None)

    @abstractmethod
    async def _start(self) -> list[ModelEvent]:
        """Return the first batch. Raises: UpstreamError."""

    async def _take_up(self, begun: StartedCall) -> list[ModelEvent]:
        """Return the first events of an answer, the notes before them; who is told of an error has to leave.

        Raises: UpstreamError.
        """
        self._begun = begun
        events: list[ModelEvent] | None = []
        try:
            while events is not None and not events:
                events = await begun.source.read_into(begun.decoder.feed)
        except OSError as error:
            raise begun.source.failure(error) from None
        events = events or _ending(begun.decoder, None)
        if type(events[-1]) in _ENDS:
            self._end(begun, events)
        return [*(Noted(note=note) for note in begun.notes), *events] if begun.notes else events

    def _end(self, begun: StartedCall, events: list[ModelEvent]) -> list[ModelEvent]:
        """Take note of the end, which these events are, and return them; a failure is worded as it is to be."""
        self._is_over = True
        last = events[-1]
        if type(last) is Failed and begun.clean is not None:
            last = events[-1] = Failed(error=begun.clean(last.error))
        self._last = last
        return events

    async def _leave(self, error: BaseException | None) -> None:
        """Close the bytes, for whatever reason; whoever comes while that is being done leaves it at that."""
        if self._is_leaving:
            return
        self._is_leaving = True
        begun, self._begun = self._begun, None
        try:
            if begun is not None:
                await (begun.source.end() if type(self._last) is Finished else begun.source.close())
        finally:
            self._is_leaving = False
            self._settle(error)

    @abstractmethod
    def _settle(self, error: BaseException | None) -> None:
        """Tell whoever has to know that the call is over."""


class Unguarded(AnswerStream):
    """A model call that is made once, wherever `begin` makes it."""

    def __init__(self, begin: Callable[[], Awaitable[StartedCall]]) -> None:
        self._begin = begin

    async def _start(self) -> list[ModelEvent]:
        try:
            return await self._take_up(await self._begin())
        except BaseException:
            await self.aclose()
            raise

    def _settle(self, error: BaseException | None) -> None:
        """Tell nobody."""


class _Chunks:
    """Bytes that a generator makes: whether it makes more is found out by asking it."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks

    async def _read(self) -> bytes:
        return await anext(self._chunks, b"")

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        """Give them to `take` until that makes something of them."""
        return read_into(self._read, take)

    def failure(self, error: OSError) -> NoReturn:
        """Let it through: what makes bytes here asks no network."""
        raise error

    async def end(self) -> None:
        """Let it come to its end."""
        try:
            await drain(self._read)
        finally:
            await self._chunks.aclose()

    async def close(self) -> None:
        """Let nothing more be made."""
        await self._chunks.aclose()


def decode(chunks: AsyncGenerator[bytes, None], decoder: Decoder, notes: Sequence[Note] = ()) -> AnswerStream:
    """Yield the events of each chunk, the notes before them; closing this closes the chunks.

    Raises: UpstreamError, before the first batch only.
    """

    async def begin() -> StartedCall:
        return StartedCall(_Chunks(chunks), decoder, notes)

    return Unguarded(begin)


def _ending(decoder: Decoder, failure: UpstreamError | None) -> list[ModelEvent]:
    """Close the stream: a cut after the finish reason harms nothing, any other is told as what the network did."""
    events = decoder.finish()
    assert isinstance(events[-1], Finished | Failed), "a decoder's finish ends in Finished or Failed"
    if failure is not None and isinstance(events[-1], Failed):
        events[-1] = Failed(error=failure.info)
    return events
