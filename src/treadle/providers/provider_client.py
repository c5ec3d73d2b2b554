"""The HTTP client for providers: one connection pool per process, with streamed responses.

Every failure is raised as an UpstreamError that names the host and contains nothing of the request. It follows no
redirects, stores no cookies, and uses the environment's proxies only if configured. It must not parse bodies, except
those of error responses.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol

import msgspec

from treadle.core.errors import CROWDED, BrokenStream, UpstreamError, UpstreamTimeout
from treadle.http.client_connection import BytesConsumer
from treadle.http.client_errors import BodyTooLarge, ConnectTimeout, NoAddress, NoConnection, NoTls, PoolTimeout
from treadle.http.client_pool import ClientPool
from treadle.providers.error_mapping import read_failure
from treadle.providers.provider_endpoint import Endpoint

DRAIN_S = 0.2
"""How long to read on after the last event, for the end of the response."""

ERROR_BYTES_MAX = 65_536
RESPONSE_BYTES_MAX = 67_108_864
_PAGES = ("text/html", "application/xhtml+xml")
_LISTS = frozenset({"anthropic-beta"})
"""Headers that hold a list: configured and client values are combined."""


class Body(Protocol):
    """The body of a response."""

    def readany(self) -> Awaitable[bytes]:
        """Return what has arrived, waiting for at least one byte; empty at the end. Raises: OSError."""
        ...

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        """Pass each read to `take` until it returns a value, and return that; None at the end. Raises: OSError."""
        ...


class HttpAnswer(Protocol):
    """A response: from the network, replayed from a cassette, or being recorded."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with names in lower case."""
        ...

    @property
    def content_type(self) -> str:
        """The media type without parameters."""
        ...

    @property
    def content(self) -> Body:
        """The body."""
        ...

    def end(self) -> Awaitable[None]:
        """Discard the rest of a completely decoded response, so that its connection can be reused."""
        ...

    def close(self) -> None:
        """Close the response, complete or not."""
        ...


class HttpStream(msgspec.Struct, frozen=True):
    """A streamed response. `read_into` raises network errors unchanged; `failure` maps them.

    `end` discards the rest and closes it. `request_id` is the provider's own, for logs and its support.
    """

    endpoint: Endpoint
    response: HttpAnswer
    read_into: Callable[[BytesConsumer], Awaitable[Any]]
    end: Callable[[], Awaitable[None]]
    status: int
    request_id: str

    def failure(self, error: OSError) -> UpstreamError:
        """Return the error for a network failure in the middle of this response."""
        return _failure(self.endpoint, error, has_response=True)

    async def close(self) -> None:
        """Close the response, complete or not."""
        self.response.close()


class HttpClient:
    """Sends requests to endpoints over reused connections; `connections_max` bounds them over all hosts."""

    def __init__(
        self,
        *,
        connections_max: int = 1_000,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        env_proxies: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._connections_max = connections_max
        self._response_bytes_max = response_bytes_max
        self._env_proxies = env_proxies
        self._now = now
        self._pool: ClientPool | None = None

    async def post(
        self, endpoint: Endpoint, path: str, body: bytes, headers: Sequence[tuple[str, str]] = (), run_id: str = ""
    ) -> HttpStream:
        """Send a JSON body and return the response as a stream, which the caller must close.

        Raises: UpstreamStatus, UpstreamTimeout, BrokenStream, UpstreamError.
        """
        try:
            sent = _headers(endpoint, headers) if headers else endpoint.sent_headers
            response = await self.send(endpoint, path, body, sent, run_id)
        except OSError as error:
            raise _failure(endpoint, error, has_response=False) from None
        if response.status >= 300 or response.content_type in _PAGES:
            await self._refuse(endpoint, response)
        received = response.headers
        request_id = received.get("x-request-id") or received.get("request-id", "")
        return HttpStream(endpoint, response, response.content.read_into, response.end, response.status, request_id)

    def send(
        self, endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], run_id: str
    ) -> Awaitable[HttpAnswer]:
        """Send one request and return its response, with the body unread. Cassettes override this.

        Raises: OSError.
        """
        return (self._pool or self._open()).request(
            "POST", endpoint.url(path), headers, body, connect_s=endpoint.connect_s, idle_s=endpoint.idle_s
        )

    async def get(self, endpoint: Endpoint, path: str, timeout_s: float) -> bytes:
        """Fetch something small, such as a list of models.

        Raises: UpstreamStatus, UpstreamTimeout, BrokenStream, UpstreamError.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._fetch(endpoint, path)
        except OSError as error:
            raise _failure(endpoint, error, has_response=False) from None

    async def _fetch(self, endpoint: Endpoint, path: str) -> bytes:
        response = await self._open().request(
            "GET", endpoint.url(path), endpoint.sent_headers, connect_s=endpoint.connect_s, idle_s=endpoint.idle_s
        )
        try:
            if response.status >= 300 or response.content_type in _PAGES:
                await self._refuse(endpoint, response)
            return await response.read_all(self._response_bytes_max)
        except OSError as error:
            raise _failure(endpoint, error, has_response=True) from None
        finally:
            response.close()

    async def close(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def _open(self) -> ClientPool:
        if self._pool is None:
            make = _proxied if self._env_proxies else ClientPool
            self._pool = make(self._connections_max, body_bytes_max=self._response_bytes_max)
        return self._pool

    async def _refuse(self, endpoint: Endpoint, response: HttpAnswer) -> NoReturn:
        """Raise the error of a response that is not a model's reply."""
        try:
            if response.status >= 400:
                body = await _read_start(response.content)
                raise read_failure(endpoint, response.status, response.headers, body, now=self._now())
        finally:
            response.close()
        if response.status >= 300:
            raise BrokenStream(
                f"upstream '{endpoint.name}' answered {response.status}, a redirect; Treadle follows none",
                hint=f"set base_url to where {endpoint.host} redirects to",
            )
        raise BrokenStream(
            f"upstream '{endpoint.name}' answered with an HTML page instead of a model's reply",
            hint=f"is base_url {endpoint.base_url} right? It usually ends in /v1",
        )


async def read_into(read: Callable[[], Awaitable[bytes]], take: BytesConsumer) -> Any:
    """Pass each read to `take` until it returns a value, and return that; None at the end."""
    while data := await read():
        made = take(data)
        if made is not None:
            return made
    return None


async def drain(read: Callable[[], Awaitable[bytes]]) -> None:
    """Read a response to its end, for at most `DRAIN_S`, and ignore failures."""
    with suppress(UpstreamError, OSError):
        async with asyncio.timeout(DRAIN_S):
            while await read():
                pass


async def _read_start(content: Body) -> bytes:
    """Return the start of an error body; if the connection breaks, what arrived until then."""
    body = b""
    try:
        while len(body) < ERROR_BYTES_MAX and (chunk := await content.readany()):
            body += chunk
    except OSError:
        pass
    return body[:ERROR_BYTES_MAX]


def _headers(endpoint: Endpoint, client_headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a request with those of the client; configured ones override them."""
    headers = {**endpoint.sent_headers}
    configured = {name.lower(): name for name in endpoint.headers}
    for name, value in client_headers:
        own = configured.get(name)
        if own is None:
            headers[name] = value
        elif name in _LISTS:
            headers[own] = ",".join(dict.fromkeys([*endpoint.headers[own].split(","), *value.split(",")]))
    return headers


def _proxied(connections_max: int, *, body_bytes_max: int) -> ClientPool:
    from treadle.http.proxies import ProxiedPool

    return ProxiedPool(connections_max, body_bytes_max=body_bytes_max)


def _failure(endpoint: Endpoint, error: OSError, *, has_response: bool) -> UpstreamError:
    """Return the error for a network failure, without anything of the request."""
    where = f"upstream '{endpoint.name}' ({endpoint.host})"
    match error:
        case PoolTimeout():
            return UpstreamTimeout(
                f"{where} was not asked: all connections were in use for {endpoint.connect_s:g} s",
                code=CROWDED,
                hint="ask again later, or raise upstreams.connections_max",
            )
        case ConnectTimeout():
            return UpstreamTimeout(
                f"{where} could not be reached within {endpoint.connect_s:g} s", hint="is the host up?"
            )
        case TimeoutError():
            return UpstreamTimeout(f"{where} fell silent for {endpoint.idle_s:g} s")
        case NoAddress():
            return UpstreamError(f"{where} has no address", hint=f"is the host in base_url {endpoint.base_url} right?")
        case NoTls():
            return UpstreamError(
                f"{where} has no TLS that can be trusted: {error}",
                hint=f"is base_url {endpoint.base_url} right, and its certificate valid?",
            )
        case NoConnection():
            hint = f"is anything listening at {endpoint.host}?"
            return UpstreamError(f"{where} cannot be reached: {error}", hint=hint)
        case BodyTooLarge():
            return BrokenStream(f"upstream '{endpoint.name}' sent more than one response may hold")
        case _ if has_response:
            return BrokenStream(f"{where} broke off in the middle of its answer")
        case _:
            return UpstreamError(f"{where} broke off before it answered")
