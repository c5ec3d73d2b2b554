"""A model behind an endpoint: adapts the plan, writes it in the endpoint's protocol, sends it, and decodes the reply.

`open_call` is the only way from a plan to a request (adapt, carry options, write, edit) and to the decoder that
reverses it; `decode` is the only way from bytes to events. Scripted models and the demo model use both. A network
failure in the middle becomes a Failed event, so every stream ends in exactly one Finished or Failed.
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
    """How a reply is decoded: which tool calls are recovered from its text, and its size limits."""

    repair: RepairRules | None = None
    bounds: AnswerBounds = AnswerBounds(text_bytes_max=16_777_216, arguments_bytes_max=4_194_304)


_DEFAULT_RULES = AnswerRules()
"""The default rules. A run's own limit on arguments is lower, and gives an error result instead of a failure."""

log = logging.getLogger(__name__)

_ENDS = frozenset({Finished, Failed})


class Model(Protocol):
    """The engine's port for models: makes one model call and yields its events."""

    def stream(self, plan: Plan, run_id: str) -> Batches:
        """Yield the events in batches, the last of them Finished or Failed."""
        ...


class UpstreamCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call, ready to be sent: path, body, notes on what was lost, and the decoder of its reply."""

    path: str
    body: bytes
    decoder: Decoder
    adapted: Adapted
    notes: tuple[Note, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


class UpstreamModel:
    """One model of one endpoint. `name` is the endpoint's name for it, if that differs from the plan's."""

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

        Raises: UpstreamError, before the first batch only; UnsupportedFeature, if a strict plan would lose something.
        """
        return Unguarded(partial(self.begin, plan, run_id))

    async def begin(self, plan: Plan, run_id: str) -> "StartedCall":
        """Make one model call and return its response, with the body unread.

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
            values = (run_id, endpoint.name, stream.status, stream.request_id or "-")
            log.debug("run %s: upstream %s answered %d, its request id %s", *values)
        return StartedCall(stream, call.decoder, call.notes, self._clean)


_CODECS = {name: row.codec for name, row in PROTOCOLS.items()}
"""Resolved at import, so that no request waits for a codec to be imported."""


def open_call(
    protocol: ProtocolName,
    plan: Plan,
    ids: IdSource,
    provider: str,
    profile: QuirkProfile | None = None,
    rules: AnswerRules = _DEFAULT_RULES,
) -> UpstreamCall:
    """Write the plan as a request in this protocol, for an upstream with this profile."""
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
    # Without a tool choice `none` the adapted plan offers no tools on a closing call, but the text may still name them.
    scanner = scanner_of(plan if plan.is_closing else adapted.plan, rules.repair)
    restored: Decoder = RestoringDecoder(decoder, adapted.restorer, scanner)
    client = plan.options.extra_protocol
    if client not in ("", protocol):
        # The client reads the reply in its own protocol; without a client protocol it stays unchanged.
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
    """Return the path of a model call. Only Gemini's contains the model; the others have no placeholder."""
    return PROTOCOLS[protocol].upstream_path.format(model=quote(model.removeprefix("models/"), safe=""))


class ReplySource(Protocol):
    """A source of the bytes of a reply."""

    @property
    def read_into(self) -> Callable[[BytesConsumer], Awaitable[Any]]:
        """Passes each read to its argument until that returns a value, and returns that; None at the end.

        Raises: UpstreamError, or OSError for network failures.
        """
        ...

    def failure(self, error: OSError) -> UpstreamError:
        """Return the error for a network failure."""
        ...

    @property
    def end(self) -> Callable[[], Awaitable[None]]:
        """Closes a completely decoded response, discarding the rest."""
        ...

    async def close(self) -> None:
        """Close it, complete or not."""
        ...


class StartedCall(msgspec.Struct, frozen=True):
    """A call whose response has started: its bytes, decoder, notes, and a function that cleans its errors."""

    source: ReplySource
    decoder: Decoder
    notes: Sequence[Note] = ()
    clean: Callable[[ErrorInfo], ErrorInfo] | None = None


class AnswerStream(LiveBatches, ABC):
    """The events of one model call, after its notes. Implements `Batches`; closing it closes the response.

    Most reads decode to a single event. It is published in the event loop turn of its bytes (`_consume`), because
    waking a task and a chain of generators for each costs more than decoding it. Subclasses make the call in `_start`.
    """

    _started: StartedCall | None = None
    _is_over: bool = False
    _is_closing: bool = False
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
        started = self._started
        if started is None:
            return await self._start()
        failure: UpstreamError | None = None
        events: list[ModelEvent] | None = None
        try:
            events = await started.source.read_into(self._consume)
        except UpstreamError as error:
            failure = error
        except OSError as error:
            failure = started.source.failure(error)
        if events is None:
            events = _ending(started.decoder, failure)
        if type(events[-1]) in _ENDS:
            self._end(started, events)
        return events

    def _consume(self, data: bytes) -> list[ModelEvent] | None:
        """Decode a read; return its events, unless there are none or `on_batch` has published them."""
        assert self._started is not None
        events = self._started.decoder.feed(data)
        if not events or (self.on_batch is not None and self.on_batch(events)):
            return None
        return events

    async def aclose(self) -> None:
        """End the call; the rest of a good response is read, so that its connection can be reused."""
        self._is_over = True
        await self._close_call(None)

    @abstractmethod
    async def _start(self) -> list[ModelEvent]:
        """Return the first batch. Raises: UpstreamError."""

    async def _read_first(self, started: StartedCall) -> list[ModelEvent]:
        """Return the first events of a response, after the notes. On an error the caller must close the call.

        Raises: UpstreamError.
        """
        self._started = started
        events: list[ModelEvent] | None = []
        try:
            while events is not None and not events:
                events = await started.source.read_into(started.decoder.feed)
        except OSError as error:
            raise started.source.failure(error) from None
        events = events or _ending(started.decoder, None)
        if type(events[-1]) in _ENDS:
            self._end(started, events)
        return [*(Noted(note=note) for note in started.notes), *events] if started.notes else events

    def _end(self, started: StartedCall, events: list[ModelEvent]) -> list[ModelEvent]:
        """Record the last event, with a failure cleaned of secrets, and return the events."""
        self._is_over = True
        last = events[-1]
        if type(last) is Failed and started.clean is not None:
            last = events[-1] = Failed(error=started.clean(last.error))
        self._last = last
        return events

    async def _close_call(self, error: BaseException | None) -> None:
        """Close the response and settle the call, once; a concurrent second call returns at once."""
        if self._is_closing:
            return
        self._is_closing = True
        started, self._started = self._started, None
        try:
            if started is not None:
                await (started.source.end() if type(self._last) is Finished else started.source.close())
        finally:
            self._is_closing = False
            self._settle(error)

    @abstractmethod
    def _settle(self, error: BaseException | None) -> None:
        """Report the end of the call."""


class Unguarded(AnswerStream):
    """A model call without retries or a circuit breaker."""

    def __init__(self, begin: Callable[[], Awaitable[StartedCall]]) -> None:
        self._begin = begin

    async def _start(self) -> list[ModelEvent]:
        try:
            return await self._read_first(await self._begin())
        except BaseException:
            await self.aclose()
            raise

    def _settle(self, error: BaseException | None) -> None:
        """Do nothing: no one needs the outcome."""


class _Chunks:
    """A `ReplySource` of the bytes of a generator."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks

    async def _read(self) -> bytes:
        return await anext(self._chunks, b"")

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        """Pass chunks to `take` until it returns a value."""
        return read_into(self._read, take)

    def failure(self, error: OSError) -> NoReturn:
        """Raise it unchanged: the generator uses no network."""
        raise error

    async def end(self) -> None:
        """Read the generator to its end."""
        try:
            await drain(self._read)
        finally:
            await self._chunks.aclose()

    async def close(self) -> None:
        """Close the generator."""
        await self._chunks.aclose()


def decode(chunks: AsyncGenerator[bytes, None], decoder: Decoder, notes: Sequence[Note] = ()) -> AnswerStream:
    """Yield the events of each chunk, after the notes; closing this closes the chunks.

    Raises: UpstreamError, before the first batch only.
    """

    async def begin() -> StartedCall:
        return StartedCall(_Chunks(chunks), decoder, notes)

    return Unguarded(begin)


def _ending(decoder: Decoder, failure: UpstreamError | None) -> list[ModelEvent]:
    """Return the last events. A cut after the finish reason is harmless; any other is reported as the network error."""
    events = decoder.finish()
    assert isinstance(events[-1], Finished | Failed), "a decoder's finish ends in Finished or Failed"
    if failure is not None and isinstance(events[-1], Failed):
        events[-1] = Failed(error=failure.info)
    return events
