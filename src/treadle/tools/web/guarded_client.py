"""HTTP client for tools that resolves a name once, checks every address, and connects only to a checked one.

Redirects are followed by hand, each as a new request through the same checks over a new connection. Proxies, cookies,
credentials and decompression bombs are excluded; time, bytes and redirects are limited.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urljoin

import msgspec

from treadle.core.errors import ToolError, ToolFailed, ToolTimeout
from treadle.http.client_errors import BadContentEncoding
from treadle.http.client_pool import ClientPool, ClientReply
from treadle.http.dialing import HostAndPort, dial_one_of
from treadle.tools.blocked_ports import OwnPorts
from treadle.tools.web.ssrf_guard import WebPolicy, WebTarget, read_url

REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {
    "User-Agent": "treadle",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, identity",
    "Connection": "close",
}
_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([^\s;"']+)""", re.IGNORECASE)

Lookup = Callable[[str, int], Awaitable[list[str]]]


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """The final response after redirects; `body` is cut at the policy's limit."""

    url: str
    status: int
    content_type: str
    charset: str | None
    body: bytes
    is_cut: bool


class GuardedClient:
    """Sends requests to public addresses only. `lookup` resolves a name to addresses.

    `own_ports` are refused at every address of this machine, even where the policy allows the address.
    """

    def __init__(self, policy: WebPolicy, *, lookup: Lookup | None = None, own_ports: OwnPorts | None = None) -> None:
        self.policy = policy
        self._own_ports = own_ports or OwnPorts()
        self._lookup = lookup or _resolve

    async def get(self, url: str) -> Fetched:
        """Fetch a URL and follow its redirects.

        Raises: ToolError.
        """
        target = read_url(url, self.policy)
        try:
            async with asyncio.timeout(self.policy.timeout_s):
                for _ in range(self.policy.redirects_max + 1):
                    answer = await self._request(target)
                    if isinstance(answer, Fetched):
                        return answer
                    target = answer
        except TimeoutError:
            raise ToolTimeout(f"{target.host} did not answer within {self.policy.timeout_s:g} s.") from None
        except (OSError, ValueError) as error:
            raise _failure(target, error) from None
        words = f"More than {self.policy.redirects_max} redirects, the last one to {target.host}."
        raise ToolError(words, code="too_many_redirects")

    async def _request(self, target: WebTarget) -> Fetched | WebTarget:
        """Send one request over a new connection; return the response, or the target of a redirect."""
        pool, wait_s = ClientPool(1, dial=self._dial), self.policy.timeout_s
        try:
            reply = await pool.request("GET", target.url, HEADERS, connect_s=wait_s, idle_s=wait_s)
            if reply.status in REDIRECTS and (place := reply.headers.get("location")):
                return read_url(urljoin(target.url, place), self.policy)
            body, is_cut = await self._body(reply)
        finally:
            await pool.close()
        charset = _CHARSET.search(reply.headers.get("content-type", ""))
        return Fetched(
            url=target.url,
            status=reply.status,
            content_type=reply.content_type,
            charset=charset[1] if charset else None,
            body=body,
            is_cut=is_cut,
        )

    async def _body(self, reply: ClientReply) -> tuple[bytes, bool]:
        body, bytes_max = bytearray(), self.policy.bytes_max
        while len(body) <= bytes_max and (piece := await reply.readany()):
            body += piece
        return bytes(body[:bytes_max]), len(body) > bytes_max

    async def _dial(self, place: HostAndPort) -> socket.socket:
        """Connect to one of a name's addresses, all of which must be allowed.

        Raises: OSError.
        """
        found = [place.host] if _is_address(place.host) else await self._lookup(place.host, place.port)
        for address in found:
            if reason := self._refusal(address, place.port):
                raise _Refused(f"{place.host} leads to {address}, which {reason}.")
        made = await dial_one_of(found, place.port)
        # Check the peer address too: the one connected to is the one that counts.
        peer = str(made.getpeername()[0])
        if reason := self._refusal(peer, place.port):
            made.close()
            raise _Refused(f"{place.host}: {peer} {reason}.")
        return made

    def _refusal(self, address: str, port: int) -> str | None:
        return self.policy.refusal(address) or self._own_ports.refusal(address, port)


class _Refused(OSError):
    """The policy refuses an address."""


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _failure(target: WebTarget, error: Exception) -> ToolError:
    match error:
        case _Refused():
            return ToolError(str(error), code="url_refused")
        case BadContentEncoding():
            return ToolError(f"The answer cannot be read: {error}.", code="bad_encoding")
        case _:
            words = str(error)[:300] or type(error).__name__
            return ToolFailed(f"{target.host} cannot be asked: {words}", code="unreachable")
