"""Rate limits on requests: per address, per client, and per client and API. Every response reports what is left, in
the headers of its API."""

import functools
import ipaddress
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

from treadle.access.client_identity import LOCAL, Client
from treadle.access.key_accounts import MINUTE_S
from treadle.access.sliding_window import Hit
from treadle.core.errors import Exhausted
from treadle.http.asgi import Header
from treadle.protocols.protocol_registry import PROTOCOLS, Vendor
from treadle.runtime import Runtime
from treadle.server.http_exchange import Exchange

HOPS_MAX = 32
"""How many addresses of X-Forwarded-For are read, starting with the nearest."""

_WITH_PORT = re.compile(r"\[(?P<v6>[0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|(?P<v4>[0-9.]+):[0-9]{1,5}")
_UNCOUNTED = frozenset({"/healthz", "/readyz", "/api/hello"})

HeaderStyle = Callable[[str, Hit, float], tuple[Header, ...]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class RequestRateLimiter:
    """Counts requests against the settings' `[rates]` and `[[rate]]`."""

    def __init__(self, runtime: Runtime) -> None:
        rates = runtime.settings.rates
        self._limiter = runtime.limiter
        self._accounts = runtime.accounts
        self._now = runtime.clock.now
        self._address_limit = rates.address_requests_per_min
        self.counts_addresses = bool(self._address_limit)
        self._api_limits = {row.api: row.requests_per_min for row in reversed(runtime.settings.rate)}
        limits = runtime.accounts.limits_of(LOCAL)
        self._bounds_all = bool(self._api_limits or limits.requests_per_min or limits.tokens_per_min)
        self._proxies = [ipaddress.ip_network(text) for text in rates.proxies]

    async def count_address(self, exchange: Exchange) -> None:
        """Count a request to the address it comes from.

        Raises: Exhausted.
        """
        if exchange.path in _UNCOUNTED:
            return
        hit = await self._limiter.take(f"address:{self._address(exchange)}", self._address_limit, MINUTE_S)
        exchange.hits = (hit,)
        self._add_headers(exchange)
        if not hit.allowed:
            message = f"The limit of {hit.limit} requests per minute from one address is reached."
            raise Exhausted(message, code="rate_limit_address", retry_after_s=hit.reset_s)

    def bounds(self, client: Client) -> bool:
        """Return whether a limit applies to the client's requests, so that they must be counted."""
        if not client.key_id:
            return self._bounds_all
        limits = self._accounts.limits_of(client)
        return bool(self._api_limits or limits.requests_per_min or limits.tokens_per_min)

    async def count_request(self, exchange: Exchange, api: str) -> None:
        """Count a request to its client, and to the client's use of the API.

        Raises: Exhausted.
        """
        client = exchange.client
        limit = self._accounts.limits_of(client).requests_per_min
        api_limit = self._api_limits.get(api, 0)
        if limit or api_limit:
            subject = client.key_id or f"at {self._address(exchange)}"
            wanted = (("", f"requests:{subject}", limit), (f" to the {api} API", f"{api}:{subject}", api_limit))
            hits = {what: await self._limiter.take(name, most, MINUTE_S) for what, name, most in wanted if most}
            exchange.hits += tuple(hits.values())
            self._add_headers(exchange)
            for what, hit in hits.items():
                if not hit.allowed:
                    message = f"The limit of {hit.limit} requests per minute{what} is reached."
                    raise Exhausted(message, code="rate_limit_requests", retry_after_s=hit.reset_s)
        tokens = await self._accounts.tokens_left(client)
        if tokens is not None:
            exchange.extra_headers += _header_style(exchange)("tokens", tokens, self._now())

    def _add_headers(self, exchange: Exchange) -> None:
        """Report what is left of the tightest limit."""
        tightest = min(exchange.hits, key=lambda hit: (hit.allowed, hit.remaining))
        exchange.extra_headers = _header_style(exchange)("requests", tightest, self._now())

    def _address(self, exchange: Exchange) -> str:
        """Return the client's address: the peer's, or the one that trusted proxies report."""
        peer = exchange.peer
        if not self._proxies:
            return address_group(peer)
        forwarded = exchange.header(b"x-forwarded-for").split(",")[-HOPS_MAX:]
        for text in (peer, *reversed(forwarded)):
            if text.strip():
                peer = without_port(text.strip())
            if not self._is_proxy(peer):
                break
        return address_group(peer)

    def _is_proxy(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._proxies)


def without_port(text: str) -> str:
    """Return an address without the port that some proxies append."""
    found = _WITH_PORT.fullmatch(text)
    return text if found is None else found["v6"] or found["v4"]


@functools.lru_cache(maxsize=4_096)
def address_group(text: str) -> str:
    """Return the group in which an address is counted: for IPv6 its /64 network, which belongs to one client."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _seconds(hit: Hit) -> int:
    return math.ceil(hit.reset_s)


def _openai(kind: str, hit: Hit, now: float) -> tuple[Header, ...]:
    return (
        (f"x-ratelimit-limit-{kind}".encode(), b"%d" % hit.limit),
        (f"x-ratelimit-remaining-{kind}".encode(), b"%d" % hit.remaining),
        (f"x-ratelimit-reset-{kind}".encode(), b"%ds" % _seconds(hit)),
    )


def _anthropic(kind: str, hit: Hit, now: float) -> tuple[Header, ...]:
    reset = datetime.fromtimestamp(now + _seconds(hit), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        (f"anthropic-ratelimit-{kind}-limit".encode(), b"%d" % hit.limit),
        (f"anthropic-ratelimit-{kind}-remaining".encode(), b"%d" % hit.remaining),
        (f"anthropic-ratelimit-{kind}-reset".encode(), reset.encode()),
    )


def _treadle(kind: str, hit: Hit, now: float) -> tuple[Header, ...]:
    head = "ratelimit" if kind == "requests" else f"ratelimit-{kind}"
    return (
        (f"{head}-limit".encode(), b"%d" % hit.limit),
        (f"{head}-remaining".encode(), b"%d" % hit.remaining),
        (f"{head}-reset".encode(), b"%d" % _seconds(hit)),
    )


def _header_style(exchange: Exchange) -> HeaderStyle:
    row = PROTOCOLS.get(exchange.envelope)
    return _treadle if row is None else _HEADER_STYLES[row.vendor]


_HEADER_STYLES: dict[Vendor, HeaderStyle] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "google": _treadle,
}
"""The headers in which each API reports what is left; Gemini defines none."""
