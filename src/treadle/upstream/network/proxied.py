"""The same requests through the proxies that the environment names, by aiohttp: for those who ask for it."""

from collections.abc import Mapping

import aiohttp

from treadle.upstream.network.errors import BrokenOff, ConnectTimeout, NoAddress, NoConnection, NoTls


class ProxiedReply:
    """An answer of aiohttp's; it is its own body."""

    def __init__(self, inner: aiohttp.ClientResponse) -> None:
        self.status = inner.status
        self.headers: Mapping[str, str] = inner.headers
        self.content_type = inner.content_type
        self._inner = inner

    @property
    def content(self) -> "ProxiedReply":
        """Return its body."""
        return self

    async def readany(self) -> bytes:
        """Return what has arrived, waiting for at least one byte; nothing at the end.

        Raises: BrokenOff, TimeoutError.
        """
        try:
            return await self._inner.content.readany()
        except aiohttp.ClientError as error:
            raise network_error(error) from None

    def close(self) -> None:
        """Give it up, whether or not it was read to its end."""
        self._inner.close()


class ProxiedPool:
    """Makes requests through proxies. It has the shape of `Pool`."""

    def __init__(self, connections_max: int) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections_max),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
        )

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        connect_s: float,
        idle_s: float,
    ) -> ProxiedReply:
        """Send a request and return its answer, the body still to be read.

        Raises: NoAddress, NoConnection, NoTls, ConnectTimeout, BrokenOff, TimeoutError.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=idle_s)
        try:
            answer = await self._session.request(
                method, url, data=body or None, headers=headers, timeout=timeout, allow_redirects=False
            )
        except aiohttp.ClientError as error:
            raise network_error(error) from None
        return ProxiedReply(answer)

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()


def network_error(error: aiohttp.ClientError) -> OSError:
    """Return what an error of aiohttp's means; its own text can hold the headers of the request."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return ConnectTimeout()
        case aiohttp.ServerTimeoutError():
            return TimeoutError()
        case aiohttp.ClientConnectorDNSError():
            return NoAddress()
        case aiohttp.ClientSSLError():
            return NoTls(_reason(error))
        case aiohttp.ClientConnectorError():
            return NoConnection(_reason(error))
        case _:
            return BrokenOff()


def _reason(error: aiohttp.ClientConnectorError | aiohttp.ClientSSLError) -> str:
    cause = getattr(error, "os_error", error)
    return str(getattr(cause, "strerror", None) or type(cause).__name__)
