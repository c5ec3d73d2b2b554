"""Reads the headers that control delivery: attach to an earlier run, resume a stream, and what a disconnect does."""

import hashlib

import msgspec

from treadle.config import Settings
from treadle.config.settings import OnDisconnect
from treadle.core.errors import ProtocolError
from treadle.core.json import BadJson, canonical_json, read_json
from treadle.core.request import Request
from treadle.protocols.protocol_registry import has_sequence_numbers
from treadle.providers.model_router import match_pattern
from treadle.runs import Idempotency
from treadle.server.delivery.stream_event_ids import Position, read_position
from treadle.server.http_exchange import Exchange

KEY_CHARS_MAX = 255
_CHOICES: tuple[OnDisconnect, ...] = ("cancel", "continue")
_KEY, _LAST, _LEAVING = b"idempotency-key", b"last-event-id", b"x-treadle-on-disconnect"
_ATTEMPT = b"x-stainless-retry-count"
"""The vendors' SDKs count their retries in this header; by default they send no idempotency key."""

_HEADERS = frozenset({_KEY, _LAST, _LEAVING, _ATTEMPT})

OPTION_HEADERS = frozenset({b"x-treadle-events", b"x-treadle-strict-fidelity", b"cache-control"})
"""Further headers that change how a request is answered."""

_ALL_HEADERS = _HEADERS | OPTION_HEADERS

_RETRY_S, _RETRY_S_MAX, _MARGIN_S = 0.5, 8.0, 0.4
"""The longest wait of those SDKs before the first retry, which doubles each time, its maximum, and a margin."""


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one request is to be answered.

    `position` is the client's place in the stream, if it resumes one. `patience_s` is how long the run continues
    without a reader; None means until its end. `retry` identifies an SDK's repeated request, `attempt` counts the
    repetitions, and `retry_s` is the longest time until the next one.
    """

    idempotency: Idempotency | None = None
    position: Position | None = None
    cancel_after_s: float | None = 0.0
    shows_ids: bool = False
    retry: str = ""
    attempt: int = 0

    @property
    def retry_s(self) -> float:
        """Return the longest time from this attempt to the next one."""
        return min(_RETRY_S * 2**self.attempt, _RETRY_S_MAX) + _MARGIN_S if self.retry else 0.0


NO_OPTIONS = RequestOptions()
_CONTINUES = RequestOptions(cancel_after_s=None)
"""The options of requests without these headers: the run ends with its reader, or continues."""


def has_default_delivery(settings: Settings) -> bool:
    """Return whether the settings change nothing about delivery, so that only the request can."""
    on_disconnect = {settings.server.on_disconnect, *(route.on_disconnect for route in settings.route)}
    is_usual = not (settings.extended_events or settings.strict_fidelity or settings.tools.tool_status == "text")
    return is_usual and "continue" not in on_disconnect


def asks_default_delivery(exchange: Exchange, request: Request) -> bool:
    """Return whether neither the headers nor the body of a request change how it is answered."""
    has_option = request.background or request.strict_fidelity or request.is_fresh or request.surface.tool_status
    return not has_option and _ALL_HEADERS.isdisjoint(exchange.headers)


def default_options(exchange: Exchange, request: Request, settings: Settings) -> RequestOptions | None:
    """Return the options of a request without delivery headers; None if it has some."""
    if not _HEADERS.isdisjoint(exchange.headers):
        return None
    on_disconnect = _configured(request, settings) if settings.route else settings.server.on_disconnect
    return _CONTINUES if request.background or on_disconnect == "continue" else NO_OPTIONS


def read_options(exchange: Exchange, request: Request, settings: Settings) -> RequestOptions:
    """Read the headers of a request for an answer.

    Raises: ProtocolError, naming the header.
    """
    idempotency = read_idempotency(exchange)
    last = read_last(exchange)
    if last is not None:
        _check_resumable(request, idempotency)
    attempt = exchange.header(_ATTEMPT)
    is_counted = idempotency is None and attempt.isascii() and attempt.isdigit() and len(attempt) <= 2
    return RequestOptions(
        idempotency=idempotency,
        position=last if last != Position(0) or has_sequence_numbers(request.protocol) else None,
        cancel_after_s=_patience_s(exchange, request, settings, has_key=idempotency is not None),
        shows_ids=idempotency is not None and _reads_numbers(exchange, request),
        retry=exchange.digest if is_counted else "",
        attempt=int(attempt) if is_counted else 0,
    )


def first_number(request: Request) -> int:
    """Return the number of the first frame: Responses counts from 0, the other protocols do not count."""
    return 0 if has_sequence_numbers(request.protocol) else 1


def read_idempotency(exchange: Exchange) -> Idempotency | None:
    """Return the idempotency key with a hash of the request, which detects another request under the same key.

    Raises: ProtocolError.
    """
    if _KEY not in exchange.headers:
        return None
    key = exchange.header(_KEY)
    if not (1 <= len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable()):
        message = f"Idempotency-Key must have 1 to {KEY_CHARS_MAX} printable ASCII characters."
        raise ProtocolError(message, param="Idempotency-Key")
    return Idempotency(key=key, request_sha256=_digest(exchange), is_resumed=b"last-event-id" in exchange.headers)


def read_last(exchange: Exchange) -> Position | None:
    """Return the client's position in the stream.

    Raises: ProtocolError.
    """
    text = exchange.header(_LAST)
    return read_position(text) if text else None


def _digest(exchange: Exchange) -> str:
    """Hash the request, independent of how its JSON is written and of the version in its path."""
    try:
        body = canonical_json(read_json(exchange.content))
    except BadJson:
        body = exchange.content
    path = exchange.path.removeprefix("/v1")
    head = f"{exchange.method} {path}\n".encode("utf-8", "replace")
    return hashlib.sha256(head + body).hexdigest()


def _check_resumable(request: Request, idempotency: Idempotency | None) -> None:
    if idempotency is None:
        raise ProtocolError(
            "Last-Event-ID needs the Idempotency-Key of the request whose answer it goes on with.",
            param="Last-Event-ID",
            hint="Send the same request with the same key again; without a key nothing can be found again.",
        )
    surface = request.surface
    if not surface.stream or surface.is_array or surface.choices > 1:
        what = "several choices" if surface.choices > 1 else "what is not a stream of events"
        raise ProtocolError(f"Last-Event-ID cannot go on with {what}.", param="Last-Event-ID")


def _patience_s(exchange: Exchange, request: Request, settings: Settings, *, has_key: bool) -> float | None:
    """Return how long the run waits for a reader: a client that sent a key is likely to reconnect."""
    asked = exchange.header(_LEAVING).lower()
    if asked and asked not in _CHOICES:
        message = f"x-treadle-on-disconnect must be one of {', '.join(_CHOICES)}."
        raise ProtocolError(message, param="x-treadle-on-disconnect")
    if request.background:
        return None
    if asked:
        return None if asked == "continue" else 0.0
    if _configured(request, settings) == "continue":
        return None
    return settings.server.reconnect_s if has_key else 0.0


def _configured(request: Request, settings: Settings) -> OnDisconnect:
    """Return the setting of the first route that matches the model, else the server's."""
    for route in settings.route:
        if match_pattern(route.model, request.model or settings.model) is not None:
            return route.on_disconnect or settings.server.on_disconnect
    return settings.server.on_disconnect


def _reads_numbers(exchange: Exchange, request: Request) -> bool:
    """Return whether the client can read frames with ids: google-genai 3.1 parses an `id:` line as JSON."""
    return not request.surface.is_array and b"x-goog-api-client" not in exchange.headers
