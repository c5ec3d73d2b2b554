"""The guarded client: asks for an address once, checks every answer, and connects to what it checked.

Redirects are followed by hand, each as a request of its own through the same checks and over a connection of its own.
No proxy, cookie, credential or packed bomb gets in; time, bytes and redirects are bounded.
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
    """What a server answered, at the end of all redirects; `body` is cut at the policy's bound."""

    url: str
    status: int
    content_type: str
    charset: str | None
    body: bytes
    is_cut: bool


class GuardedClient:
    """Asks public servers and nobody else. `lookup` finds the addresses of a name.

    `own_ports` are refused at every address of this machine, also where the policy allows the address.
    """

    def __init__(self, policy: WebPolicy, *, lookup: Lookup | None = None, own_ports: OwnPorts | None = None) -> None:
        self.policy = policy
        self._own_ports = own_ports or OwnPorts()
        self._lookup = lookup or _look_up

    async def get(self, url: str) -> Fetched:
        """Ask for a URL and follow its redirects.

        Raises: ToolError.
        """
        target = read_url(url, self.policy)
        try:
            async with asyncio.timeout(self.policy.timeout_s):
                for _ in range(self.policy.redirects_max + 1):
                    answer = await self._ask(target)
                    if isinstance(answer, Fetched):
                        return answer
                    target = answer
        except TimeoutError:
            raise ToolTimeout(f"{target.host} did not answer within {self.policy.timeout_s:g} s.") from None
        except (OSError, ValueError) as error:
            raise _failure(target, error) from None
        words = f"More than {self.policy.redirects_max} redirects, the last one to {target.host}."
        raise ToolError(words, code="too_many_redirects")

    async def _ask(self, target: WebTarget) -> Fetched | WebTarget:
        """Make one request over a connection that nothing else uses."""
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
        """Connect to an address of a name, all of which must be ones that may be asked.

        Raises: OSError.
        """
        found = [place.host] if _is_address(place.host) else await self._lookup(place.host, place.port)
        for address in found:
            if reason := self._refusal(address, place.port):
                raise _Refused(f"{place.host} leads to {address}, which {reason}.")
        made = await dial_one_of(found, place.port)
        # Look once more at who really answered.
        peer = str(made.getpeername()[0])
        if reason := self._refusal(peer, place.port):
            made.close()
            raise _Refused(f"{place.host}: {peer} {reason}.")
        return made

    def _refusal(self, address: str, port: int) -> str | None:
        return self.policy.refusal(address) or self._own_ports.refusal(address, port)


class _Refused(OSError):
    """An address may not be asked."""


async def _look_up(host: str, port: int) -> list[str]:
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
