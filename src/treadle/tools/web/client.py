"""The guarded client: asks for an address once, checks every answer, and connects to what it checked.

Redirects are followed by hand, each as a request of its own through the same checks. No proxy, cookie, credential or
compressed bomb gets in; time, bytes and redirects are bounded.
"""

import asyncio
import contextlib
import socket
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urljoin

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from treadle.canon.errors import ToolError, ToolFailed, ToolTimeout
from treadle.tools.web.address import Policy, Target, read_url

PIECE_BYTES = 65_536
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {"user-agent": "treadle", "accept": "*/*", "accept-encoding": "gzip, identity"}
HEADER_BYTES_MAX = 16_384
_UNZIP = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""How zlib is told to read an encoding."""

Lookup = Callable[[str, int], Awaitable[list[str]]]


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered, at the end of all redirects; `body` is cut at the policy's bound."""

    url: str
    status: int
    content_type: str
    charset: str | None
    body: bytes
    is_cut: bool


class GuardedClient:
    """Asks public servers and nobody else. `lookup` finds the addresses of a name."""

    def __init__(self, policy: Policy, *, lookup: Lookup | None = None) -> None:
        self.policy = policy
        self._resolver = _Pinned(policy, lookup or _look_up)

    async def get(self, url: str) -> Fetched:
        """Ask for a URL and follow its redirects.

        Raises: ToolError.
        """
        target = read_url(url, self.policy)
        try:
            async with asyncio.timeout(self.policy.timeout_s), self._session() as session:
                for _ in range(self.policy.redirects_max + 1):
                    answer = await self._ask(session, target)
                    if isinstance(answer, Fetched):
                        return answer
                    target = answer
        except TimeoutError:
            raise ToolTimeout(f"{target.host} did not answer within {self.policy.timeout_s:g} s.") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failure(target, error) from None
        words = f"More than {self.policy.redirects_max} redirects, the last one to {target.host}."
        raise ToolError(words, code="too_many_redirects")

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(resolver=self._resolver, use_dns_cache=False, force_close=True, limit=1)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=HEADERS,
            trust_env=False,
            auto_decompress=False,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )

    async def _ask(self, session: aiohttp.ClientSession, target: Target) -> Fetched | Target:
        async with session.get(target.url, allow_redirects=False) as response:
            self._check_peer(response, target)
            if response.status in REDIRECTS and (place := response.headers.get("location")):
                return read_url(urljoin(target.url, place), self.policy)
            body, is_cut = await self._body(response)
            return Fetched(
                url=target.url,
                status=response.status,
                content_type=response.content_type,
                charset=response.charset,
                body=body,
                is_cut=is_cut,
            )

    def _check_peer(self, response: aiohttp.ClientResponse, target: Target) -> None:
        """Look once more at who really answered."""
        connection = response.connection
        transport = None if connection is None else connection.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        if peer is not None and (reason := self.policy.refusal(peer[0])):
            raise ToolError(f"{target.host}: {peer[0]} {reason}.", code="url_refused")

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "", *_UNZIP):
            raise ToolError(f"The answer is encoded as {encoding[:40]}, which is not read.", code="bad_encoding")
        unzip = zlib.decompressobj(_UNZIP[encoding]) if encoding in _UNZIP else None
        body, bytes_max = bytearray(), self.policy.bytes_max
        async for piece in response.content.iter_chunked(PIECE_BYTES):
            if unzip is not None:
                try:
                    piece = unzip.decompress(piece, bytes_max + 1 - len(body))
                except zlib.error as error:
                    raise ToolError(f"The answer cannot be unpacked: {error}", code="bad_encoding") from None
            body += piece
            if len(body) > bytes_max:
                return bytes(body[:bytes_max]), True
        return bytes(body), False


class _Pinned(AbstractResolver):
    """Finds addresses and refuses a name as a whole when any of them may not be asked."""

    def __init__(self, policy: Policy, lookup: Lookup) -> None:
        self._policy = policy
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses that will be connected to, and no other."""
        found = await self._lookup(host, port)
        for address in found:
            if reason := self._policy.refusal(address):
                raise _Refused(f"{host} leads to {address}, which {reason}.")
        if not found:
            raise OSError(f"{host} has no address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


class _Refused(OSError):
    """An address may not be asked."""


async def _look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _failure(target: Target, error: Exception) -> ToolError:
    refused = _refusal_in(error)
    if refused is not None:
        return ToolError(str(refused), code="url_refused")
    return ToolFailed(f"{target.host} cannot be asked: {str(error)[:300] or type(error).__name__}", code="unreachable")


def _refusal_in(error: BaseException) -> _Refused | None:
    """Find the refusal behind whatever the HTTP client made of it."""
    pending: list[Any] = [error]
    while pending:
        each = pending.pop()
        if isinstance(each, _Refused):
            return each
        with contextlib.suppress(AttributeError):
            pending.append(each.os_error)
        pending += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
    return None
