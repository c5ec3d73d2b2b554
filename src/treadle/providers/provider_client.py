"""The HTTP client towards providers: one pool of connections per process, chunks as they arrive from the network.

Every failure leaves here as an UpstreamError that names the host and nothing of the request. It follows no redirect,
keeps no cookie and asks no proxy of the environment unless told to. It must not look inside a body, except to read a
refusal.
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
"""How long to wait for the end of an answer that is read to it although all was said."""

ERROR_BYTES_MAX = 65_536
RESPONSE_BYTES_MAX = 67_108_864
_PAGES = ("text/html", "application/xhtml+xml")
_LISTS = frozenset({"anthropic-beta"})
"""Headers that hold a list: what is configured and what the client says go together."""


class Body(Protocol):
    """The body of an answer."""

    def readany(self) -> Awaitable[bytes]:
        """Return what has arrived, waiting for at least one byte; nothing at the end. Raises: OSError."""
        ...

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        """Give what arrives to `take` until that makes something, and return it; None at the end. Raises: OSError."""
        ...


class HttpAnswer(Protocol):
    """What is read of an answer; one that a cassette plays or records has it too."""

    @property
    def status(self) -> int:
        """Return its status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return its headers, which are found by names in small letters."""
        ...

    @property
    def content_type(self) -> str:
        """Return its type without parameters."""
        ...

    @property
    def content(self) -> Body:
        """Return its body."""
        ...

    def end(self) -> Awaitable[None]:
        """Close what was understood to its end: the rest is passed over, so that its connection can be used again."""
        ...

    def close(self) -> None:
        """Give it up, whether or not it was read to its end."""
        ...


class HttpStream(msgspec.Struct, frozen=True):
    """The body of one answer, given to whoever reads it as it arrives; `read_into` fails as the network does.

    `end` passes over the rest and closes it. `request_id` is the provider's own, for its support and our logs.
    """

    endpoint: Endpoint
    response: HttpAnswer
    read_into: Callable[[BytesConsumer], Awaitable[Any]]
    end: Callable[[], Awaitable[None]]
    status: int
    request_id: str

    def failure(self, error: OSError) -> UpstreamError:
        """Say what it means that the network failed in the middle of this."""
        return _failure(self.endpoint, error, begun=True)

    async def close(self) -> None:
        """Give it up, whether or not it was read to its end."""
        self.response.close()


class HttpClient:
    """Posts requests to endpoints, reusing connections. `connections_max` bounds all of them together."""

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
        self._network: ClientPool | None = None

    async def post(
        self, endpoint: Endpoint, path: str, body: bytes, headers: Sequence[tuple[str, str]] = (), run_id: str = ""
    ) -> HttpStream:
        """Send a JSON body and give the answer as a stream, which must be closed; that ends one that is not whole.

        Raises: UpstreamStatus, UpstreamTimeout, BrokenStream, UpstreamError.
        """
        try:
            said = _headers(endpoint, headers) if headers else endpoint.sent_headers
            response = await self.send(endpoint, path, body, said, run_id)
        except OSError as error:
            raise _failure(endpoint, error, begun=False) from None
        if response.status >= 300 or response.content_type in _PAGES:
            await self._refuse(endpoint, response)
        told = response.headers
        request_id = told.get("x-request-id") or told.get("request-id", "")
        return HttpStream(endpoint, response, response.content.read_into, response.end, response.status, request_id)

    def send(
        self, endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], run_id: str
    ) -> Awaitable[HttpAnswer]:
        """Make one request and return its answer, the body still to be read. Cassettes take the place of this.

        Raises: OSError.
        """
        return (self._network or self._open()).request(
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
            raise _failure(endpoint, error, begun=False) from None

    async def _fetch(self, endpoint: Endpoint, path: str) -> bytes:
        response = await self._open().request(
            "GET", endpoint.url(path), endpoint.sent_headers, connect_s=endpoint.connect_s, idle_s=endpoint.idle_s
        )
        try:
            if response.status >= 300 or response.content_type in _PAGES:
                await self._refuse(endpoint, response)
            return await response.read_all(self._response_bytes_max)
        except OSError as error:
            raise _failure(endpoint, error, begun=True) from None
        finally:
            response.close()

    async def close(self) -> None:
        """Close every connection."""
        if self._network is not None:
            network, self._network = self._network, None
            await network.close()

    def _open(self) -> ClientPool:
        if self._network is None:
            make = _proxied if self._env_proxies else ClientPool
            self._network = make(self._connections_max, body_bytes_max=self._response_bytes_max)
        return self._network

    async def _refuse(self, endpoint: Endpoint, response: HttpAnswer) -> NoReturn:
        """Refuse an answer that is not the start of a reply."""
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
    """Give what is read to `take` until that makes something, and return it; None at the end."""
    while data := await read():
        made = take(data)
        if made is not None:
            return made
    return None


async def drain(read: Callable[[], Awaitable[bytes]]) -> None:
    """Read on to the end of an answer, whether or not anybody still listens."""
    with suppress(UpstreamError, OSError):
        async with asyncio.timeout(DRAIN_S):
            while await read():
                pass


async def _read_start(content: Body) -> bytes:
    """Read the start of an error body; one that breaks off is still worth what came."""
    body = b""
    try:
        while len(body) < ERROR_BYTES_MAX and (chunk := await content.readany()):
            body += chunk
    except OSError:
        pass
    return body[:ERROR_BYTES_MAX]


def _headers(endpoint: Endpoint, said: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a request with what the client `said` of its own: what is configured goes before that."""
    headers = {**endpoint.sent_headers}
    configured = {name.lower(): name for name in endpoint.headers}
    for name, value in said:
        own = configured.get(name)
        if own is None:
            headers[name] = value
        elif name in _LISTS:
            headers[own] = ",".join(dict.fromkeys([*endpoint.headers[own].split(","), *value.split(",")]))
    return headers


def _proxied(connections_max: int, *, body_bytes_max: int) -> ClientPool:
    from treadle.http.proxies import ProxiedPool

    return ProxiedPool(connections_max, body_bytes_max=body_bytes_max)


def _failure(endpoint: Endpoint, error: OSError, *, begun: bool) -> UpstreamError:
    """Say what a network error means, in words that hold nothing of the request."""
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
        case _ if begun:
            return BrokenStream(f"{where} broke off in the middle of its answer")
        case _:
            return UpstreamError(f"{where} broke off before it answered")
