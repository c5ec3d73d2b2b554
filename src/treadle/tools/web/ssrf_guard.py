"""Decides which URLs and addresses tools may fetch: public ones in plain notation. Does no I/O.

Addresses that embed another address (mapped, translated, tunnelled) are refused entirely, and so is every host that a
resolver could read as a number: no real site needs them, and each is a way around a check.
"""

import ipaddress
import re
import unicodedata
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, urlsplit

import msgspec

from treadle.core.errors import ToolError

URL_CHARS_MAX = 4_096
HOST_CHARS_MAX = 253
PORTS = (80, 443)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"^(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?$")
_NUMBER = re.compile(r"^(0x[0-9a-f]*|\d+)$")
_REFUSED_NETWORKS = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",
        "::/96",
        "::ffff:0:0/96",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
]
"""Private, local, shared, reserved, translated and tunnelled networks, and Azure's internal service address."""
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class WebPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may be fetched: `hosts` are name patterns (none means all); `networks` are allowed although private."""

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = PORTS
    networks: tuple[str, ...] = ()
    redirects_max: int = 5
    bytes_max: int = 1_048_576
    timeout_s: float = 20.0

    def refusal(self, address: str) -> str | None:
        """Return why an address may not be connected to; None when it may."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return "is not an address"
        if any(_contains(ipaddress.ip_network(text), parsed) for text in self.networks):
            return None
        if isinstance(parsed, ipaddress.IPv6Address) and (parsed.scope_id or parsed not in _PUBLIC_V6):
            return "is not a public address"
        if any(_contains(network, parsed) for network in _REFUSED_NETWORKS) or not parsed.is_global:
            return "is not a public address"
        return None


class WebTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an accepted URL; the host is a name or an address without brackets."""

    url: str
    scheme: str
    host: str
    port: int


def read_url(text: str, policy: WebPolicy) -> WebTarget:
    """Parse and check a URL, as far as possible without resolving its host.

    Raises: ToolError.
    """
    if len(text) > URL_CHARS_MAX:
        raise _refused(f"The URL is longer than {URL_CHARS_MAX} characters.")
    if _FORBIDDEN.search(text):
        raise _refused("The URL contains a space, a backslash or a control character.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _refused(f"The URL cannot be read: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise _refused("Only http:// and https:// can be asked.")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise _refused("The URL may not hold a user name or a password.")
    port = _DEFAULT_PORTS[parts.scheme] if port is None else port
    if port not in policy.ports:
        raise _refused(f"Port {port} may not be asked; allowed: {', '.join(map(str, policy.ports))}.")
    host = _host(parts, policy)
    shown = f"[{host}]" if ":" in host else host
    path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    url = f"{parts.scheme}://{shown}:{port}{path if path.startswith('/') else f'/{path}'}"
    return WebTarget(url=url, scheme=parts.scheme, host=host, port=port)


def _host(parts: SplitResult, policy: WebPolicy) -> str:
    raw = parts.hostname or ""
    # A resolver normalizes such characters, so the check must see the normalized host.
    host = unicodedata.normalize("NFKC", raw).lower()
    if not host:
        raise _refused("The URL has no host.")
    if "%" in host or ("[" in parts.netloc and ":" not in host):
        raise _refused(f"The host is not spelt plainly: {raw}")
    if ":" not in host and not host.isascii():
        host = _ascii(host)
    if ":" in host or _is_number(host):
        return _literal(host, raw, policy)
    if len(host) > HOST_CHARS_MAX or not _HOST.match(host):
        raise _refused(f"The host is not a name: {raw[:80]}")
    host = host.rstrip(".")
    if policy.hosts and not any(fnmatchcase(host, pattern.lower()) for pattern in policy.hosts):
        raise _refused(f"The host {host} is not among those that may be asked.")
    return host


def _literal(host: str, raw: str, policy: WebPolicy) -> str:
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        raise _refused(f"The host is a number that is not spelt as an address: {raw[:80]}") from None
    if reason := policy.refusal(address):
        raise _refused(f"{address} {reason}.")
    if policy.hosts and address not in policy.hosts:
        raise _refused(f"The host {address} is not among those that may be asked.")
    return address


def _is_number(host: str) -> bool:
    """Return whether a resolver might read the host as an address: its last label is a number in any base."""
    return bool(_NUMBER.match(host.rstrip(".").rpartition(".")[2]))


def _ascii(host: str) -> str:
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise _refused(f"The host is not a name: {host[:80]}") from None


def _contains(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network


def _refused(words: str) -> ToolError:
    return ToolError(words, code="url_refused")
