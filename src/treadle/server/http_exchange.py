"""One HTTP exchange over ASGI: a bounded request in, one response or one stream out.

Adds the headers that every response needs (request id, safety headers), and writes errors in the envelope of the API
whose path was called. Routes and runs do not belong here.
"""

import asyncio
import hashlib
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from treadle.access.client_identity import PUBLIC_CLIENT, Client
from treadle.access.sliding_window import Hit
from treadle.core.errors import ErrorInfo, LimitExceeded, ProtocolError, RequestError
from treadle.core.json import type_errors, write_json
from treadle.http.asgi import (
    DISCONNECT_IN_SCOPE,
    EDGE_IN_SCOPE,
    PENDING_BYTES_IN_SCOPE,
    WHOLE_IN_SCOPE,
    Application,
    AsgiMessage,
    Edge,
    Header,
    PendingBytes,
    Receive,
    Scope,
    Send,
)
from treadle.protocols.error_envelopes import SHARED_MODELS, envelope_of, write_refusal
from treadle.protocols.field_reader import NAME_CHARS_MAX, open_body
from treadle.protocols.protocol_registry import CHAT, GEMINI, MESSAGES

T = TypeVar("T")

OnHead = Callable[[tuple[Header, ...]], None]
CountBytes = Callable[[int], None]
"""Counts a piece of a body, or refuses it."""

CLIENT_IN_SCOPE = "treadle.client"
"""The ASGI scope key under which an application that we delegate to finds the client."""

SAFE_METHODS = frozenset({"GET", "HEAD"})
JSON = b"application/json"
NO_STORE = (b"cache-control", b"no-store")
_ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
EVENT_STREAM = b"text/event-stream; charset=utf-8"
_STREAM: tuple[Header, ...] = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
OFF_LOOP_BYTES = 1_048_576
"""A body over this is read in a thread, so that one client's history does not hold up the others' streams."""

_REPEATABLE = frozenset({b"idempotency-key", b"x-stainless-retry-count"})
"""Headers of clients that may send the same request again."""

_QUERY_BYTES_MAX = 8_192
_NO_PARAMS: dict[str, str] = {}
_PROBLEM_CHARS_MAX = 500
_NAMED_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<field>.*)`$", re.DOTALL)
NO_RETRY: Header = (b"x-should-retry", b"false")
"""Stops the vendors' SDKs, which retry most failures, where a retry is useless or harmful."""
_RETRY_AFTER_S = 1.0
_RETRY_AFTER_STATUSES = frozenset({429, 503, 529})


class HttpError(RequestError):
    """An error that exists only in HTTP, with its status."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        headers: tuple[Header, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.headers = headers
        self._status = status
        self._retry_after_s = retry_after_s

    @property
    def http_status(self) -> int:
        """Return the status this was made with."""
        return self._status

    @property
    def is_retryable(self) -> bool:
        """Return whether a retry delay is known."""
        return self._retry_after_s is not None

    @property
    def retry_after(self) -> float | None:
        """Return the retry delay in seconds, if it is known."""
        return self._retry_after_s


def uncounted(_size: int) -> None:
    """Count nothing: the body is limited only by its own bound."""


class Exchange:
    """A request and its one response.

    Of a request that may be repeated, it stores what identifies the repetition: the body as `content`, or only its
    `digest`. `hits` are the rate limits that were charged, `extra_headers` report them in the response. `edge` is set
    where our own HTTP server can write without awaiting.
    """

    # Class attributes: creating an exchange assigns no values that are the same for all requests.

    params: dict[str, str] = _NO_PARAMS
    client: Client = PUBLIC_CLIENT
    extra_headers: tuple[Header, ...] = ()
    hits: tuple[Hit, ...] = ()
    is_started = False
    status = 0
    content = b""
    digest = ""
    counted_bytes = 0

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        root = scope.get("root_path")
        self.method = scope["method"]
        self.path = path_below(scope["path"], root) if root else scope["path"]
        self.query_string = scope["query_string"]
        self.headers = dict(scope["headers"])
        self.request_id = request_id
        self._scope: dict[str, Any] = scope  # type: ignore[assignment]  # what the edge adds has no type
        edge: Edge | None = self._scope.get(EDGE_IN_SCOPE)
        self.edge = edge if edge is not None and edge.is_direct(receive, send) else None
        self._receive = receive
        self._send = send

    def header(self, name: bytes) -> str:
        """Return a header of the request, or an empty string."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def peer(self) -> str:
        """Return the address that the connection comes from."""
        client = self._scope.get("client")
        return client[0] if client else ""

    @property
    def reach(self) -> str | None:
        """Return the key whose data this method may access in Treadle's own API; None means the data of all keys."""
        return self.client.reach(is_read=self.method in SAFE_METHODS)

    @property
    def envelope(self) -> str:
        """Return the protocol whose error format this path uses."""
        found = envelope_of(self.path)
        return self._models_envelope() if found == SHARED_MODELS else found

    def _models_envelope(self) -> str:
        """Return which API asks for models: three share that path, and only Gemini has actions on a model."""
        if b"anthropic-version" in self.headers:
            return MESSAGES
        is_action = self.method == "POST" and ":" in self.path
        is_google = is_action or b"x-goog-api-key" in self.headers or b"key=" in self.query_string
        return GEMINI if is_google else CHAT

    def query(self) -> dict[str, str]:
        """Return the query's fields; if one is repeated, its last value.

        Raises: HttpError.
        """
        if not self.query_string:
            return {}
        if len(self.query_string) > _QUERY_BYTES_MAX:
            raise HttpError(414, "query_too_long", f"The query is over {_QUERY_BYTES_MAX} bytes.")
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))

    async def body(self, bytes_max: int, timeout_s: float, count: CountBytes = uncounted) -> bytes:
        """Read the whole body. Bytes that arrive in pieces are passed to `count` and added to `counted_bytes`.

        Raises: LimitExceeded when it is longer than `bytes_max`, HttpError when it is cut off or too slow, or when
            `count` refuses it.
        """
        body = None if self.edge is None else self.edge.try_take_body_now()
        if body is None:
            body = await self._read_within(bytes_max, timeout_s, count)
        elif len(body) > bytes_max:
            raise _too_large(bytes_max)
        if not _REPEATABLE.isdisjoint(self.headers):
            await self._remember(body)
        return body

    async def _remember(self, body: bytes) -> None:
        """Store what identifies a repetition of this request."""
        if b"idempotency-key" in self.headers:
            self.content = body
        else:
            is_large = len(body) > OFF_LOOP_BYTES
            self.digest = await asyncio.to_thread(self._digest, body) if is_large else self._digest(body)

    async def _read_within(self, bytes_max: int, timeout_s: float, count: CountBytes) -> bytes:
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > bytes_max:
            raise _too_large(bytes_max)
        if WHOLE_IN_SCOPE in self._scope:
            return await self._read(bytes_max, count)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._read(bytes_max, count)
        except TimeoutError:
            message = f"The body did not arrive within {timeout_s:g} s."
            raise HttpError(408, "request_timeout", message, headers=((b"connection", b"close"),)) from None

    def _digest(self, body: bytes) -> str:
        """Hash the request and its sender's credentials."""
        sender = [self.headers.get(name, b"") for name in (b"authorization", b"x-api-key", b"x-goog-api-key")]
        head = b"\n".join((self.method.encode(), self.path.encode("utf-8", "replace"), self.query_string, *sender, b""))
        return hashlib.sha256(head + body).hexdigest()

    async def _read(self, bytes_max: int, count: CountBytes) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise HttpError(400, "body_incomplete", "The connection closed before the body was complete.")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > bytes_max:
                raise _too_large(bytes_max)
            count(len(chunk))
            self.counted_bytes = size
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def watch_client(self, gone: Callable[[], None] | None, behind: PendingBytes | None = None) -> bool:
        """Have our own HTTP server call `gone` when the client disconnects, and `behind` while it does not read.

        None ends the watch. Returns False under another server, where a task must await `disconnected`.
        """
        scope = self._scope
        scope[PENDING_BYTES_IN_SCOPE] = behind
        if DISCONNECT_IN_SCOPE not in scope:
            return False
        if scope[DISCONNECT_IN_SCOPE] is not True:
            scope[DISCONNECT_IN_SCOPE] = gone
        elif gone is not None:
            asyncio.get_running_loop().call_soon(gone)
        return True

    def drop_headers(self) -> None:
        """Drop the request's headers once a long stream begins: they can be most of the memory that it holds."""
        if self.edge is not None:
            self.headers = {}
            self._scope["headers"].clear()

    async def disconnected(self) -> None:
        """Wait until the client disconnects. The body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self,
        status: int,
        body: bytes = b"",
        content_type: bytes = JSON,
        headers: tuple[Header, ...] = (NO_STORE,),
    ) -> None:
        """Send a complete response."""
        length = (b"content-length", b"%d" % len(body))
        typed = ((b"content-type", content_type), length) if status not in (204, 304) else ()
        headers = self._response_headers(status, (*typed, *headers))
        if self.edge is None or not self.edge.try_start_now(status, headers, body, is_whole=True):
            await self._begin(status, headers, b"" if self.method == "HEAD" else body, is_whole=True)

    async def answer_json(self, status: int, value: object, headers: tuple[Header, ...] = ()) -> None:
        """Send a value as JSON that must not be cached."""
        await self.answer(status, write_json(value), JSON, (NO_STORE, *headers))

    async def refuse(self, error: ErrorInfo, headers: tuple[Header, ...] = ()) -> None:
        """Send an error in the envelope of the API that was called, without a retry delay if it must not be retried."""
        if NO_RETRY in headers:
            error = msgspec.structs.replace(error, retryable=False, retry_after_s=None)
        body = write_refusal(self.envelope, error, self.request_id)
        await self.answer(error.status, body, JSON, (NO_STORE, *_retry_after(error), *headers))

    async def begin(
        self, headers: tuple[Header, ...] = (), content_type: bytes = EVENT_STREAM, data: bytes = b""
    ) -> None:
        """Start a stream, of server-sent events unless `content_type` differs, and send its first bytes."""
        headers = self._response_headers(200, ((b"content-type", content_type), *_STREAM, *headers))
        if self.edge is None or not self.edge.try_start_now(200, headers, data, is_whole=False):
            await self._begin(200, headers, data, is_whole=False)

    async def write(self, data: bytes) -> None:
        """Send more of the stream."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last of the stream."""
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def delegate(self, application: Application, body: bytes, on_head: OnHead | None = None) -> None:
        """Let another ASGI application answer; the body has been read. `on_head` gets its response headers."""
        waiting: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> AsgiMessage:
            return waiting.pop() if waiting else await self._receive()

        async def send(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                head = tuple(message.get("headers", ()))
                if on_head is not None:
                    on_head(head)
                status = message.get("status", 200)
                headers = self._response_headers(status, head)
                await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})
            else:
                await self._send(message)

        await application({**self._scope, CLIENT_IN_SCOPE: self.client}, receive, send)

    async def _begin(self, status: int, headers: tuple[Header, ...], data: bytes, *, is_whole: bool) -> None:
        """Send the response head and the first bytes by ASGI; `is_whole` if they are all."""
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})
        if data or is_whole:
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_whole})

    def _response_headers(self, status: int, headers: tuple[Header, ...]) -> tuple[Header, ...]:
        """Return the headers of the response. Anthropic's SDKs read the id from a header with another name."""
        assert not self.is_started, "an exchange has one answer"
        self.is_started = True
        self.status = status
        request_id = self.request_id.encode("latin-1")
        envelope = envelope_of(self.path)
        if envelope == MESSAGES or (envelope == SHARED_MODELS and b"anthropic-version" in self.headers):
            return (*headers, *self.extra_headers, *_ALWAYS, (b"x-request-id", request_id), (b"request-id", request_id))
        return (*headers, *self.extra_headers, *_ALWAYS, (b"x-request-id", request_id))


def read_number(query: dict[str, str], name: str, *, default: int, least: int, most: int = 2**53) -> int:
    """Read a whole number from the query.

    Raises: ProtocolError.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= most):
        raise ProtocolError(f"{name} must be a whole number from {least} to {most}.", param=name)
    return int(text)


def read_body(body: bytes, kind: type[T]) -> T:
    """Read a body of Treadle's own API.

    Raises: ProtocolError, naming the field.
    """
    body, _ = open_body(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        raise ProtocolError(f"{problem[:_PROBLEM_CHARS_MAX]}.", param=_param(problem, path.strip("`$."))) from None
    except type_errors as error:
        raise ProtocolError(f"The body is not JSON: {error}.", code="invalid_json") from None


def _param(problem: str, path: str) -> str | None:
    """Return the field at fault: the problem names a missing or unknown one, the path names the others."""
    named = _NAMED_FIELD.search(problem)
    names = [name for name in (path, named["field"][:NAME_CHARS_MAX] if named else "") if name]
    return ".".join(names) or None


def path_below(path: str, root: str) -> str:
    """Return a path relative to where the application is mounted; ASGI servers pass it whole."""
    root = root.rstrip("/")
    if not root or not f"{path}/".startswith(f"{root}/"):
        return path
    return path.removeprefix(root) or "/"


def _too_large(bytes_max: int) -> LimitExceeded:
    return LimitExceeded(
        f"The request body is over {bytes_max} bytes.",
        hint="Send less, or raise server.body_bytes_max in the configuration.",
    )


def _retry_after(error: ErrorInfo) -> tuple[Header, ...]:
    """Return `retry-after` where a retry helps and the client would otherwise guess the delay."""
    if error.retry_after_s is None and not (error.retryable and error.status in _RETRY_AFTER_STATUSES):
        return ()
    seconds = math.ceil(max(0.0, error.retry_after_s if error.retry_after_s is not None else _RETRY_AFTER_S))
    return ((b"retry-after", b"%d" % seconds),)
