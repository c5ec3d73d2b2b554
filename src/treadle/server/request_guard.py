"""Rejects unsafe requests by their method, path and headers alone; bodies are not read here.

A gateway on loopback must not be driven by a web page from elsewhere. A page can reach it by a name that resolves to
127.0.0.1 (DNS rebinding: caught by Host), by a plain cross-origin POST (caught by Origin, Sec-Fetch-Site and
Content-Type, since JSON needs a preflight that is never granted) and by a form (caught by Content-Type).
"""

import functools
import ipaddress
import re
from collections.abc import Mapping
from itertools import chain
from operator import itemgetter
from urllib.parse import urlsplit

from treadle.core.errors import Forbidden
from treadle.core.ids import KEY
from treadle.http.asgi import Header
from treadle.server.http_exchange import Exchange, HttpError

HEADERS_MAX = 128
HEADER_BYTES_MAX = 65_536
PATH_CHARS_MAX = 2_048
KNOWN_MAX = 256
"""How many accepted Host headers are cached."""

_name = itemgetter(0)
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_BODY_METHODS = frozenset({"POST", "PATCH"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_BROWSER_MARKS = (b"origin", b"sec-fetch-site", b"sec-fetch-mode")
_DOUBTFUL = frozenset({b"origin", b"sec-fetch-site", b"content-encoding"})
"""Headers that need a closer check. A JSON request without them is not from another origin's page."""

_KEY_HEADERS = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key"})
_KEY_ID = f"{KEY}_"
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


def sane_request_id(given: bytes) -> str | None:
    """Return the client's request id if it can safely be logged and sent back."""
    return given.decode("latin-1") if _REQUEST_ID.fullmatch(given) else None


def client_key(exchange: Exchange) -> str | None:
    """Return the API key that a client sent, in any of the places that the APIs use for one.

    A key in the query is read only here, and never becomes part of a path, a log line or a label. The id of a key
    (`?key=key_…`) is not a key: it filters lists.

    Raises: HttpError for a query that is too long.
    """
    headers = exchange.headers
    if not exchange.query_string and _KEY_HEADERS.isdisjoint(headers):
        return None
    if b"authorization" in headers:
        scheme, _, token = exchange.header(b"authorization").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        if bearer:
            return bearer
    named = headers.get(b"x-api-key") or headers.get(b"x-goog-api-key")
    if named:
        return named.decode("latin-1")
    if not exchange.query_string:
        return None
    asked = exchange.query().get("key", "")
    return None if asked.startswith(_KEY_ID) else asked or None


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether a name or address can only mean this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class RequestGuard:
    """Checks every request before a route sees it."""

    def __init__(self, host: str, allowed_hosts: tuple[str, ...] = ()) -> None:
        own = () if host in _ANY_ADDRESS else (host,)
        self._hosts = frozenset(name.strip("[]").lower() for name in (*own, *allowed_hosts))
        self._known: set[bytes] = set()

    def check(self, exchange: Exchange, headers: list[Header]) -> None:
        """Check host, origin, sizes and content type.

        Raises: Forbidden, HttpError.
        """
        if len(exchange.path) > PATH_CHARS_MAX:
            raise HttpError(414, "path_too_long", f"The path is over {PATH_CHARS_MAX} characters.")
        if len(headers) > HEADERS_MAX or sum(map(len, chain.from_iterable(headers))) > HEADER_BYTES_MAX:
            message = f"The request has over {HEADERS_MAX} headers, or over {HEADER_BYTES_MAX} bytes of them."
            raise HttpError(431, "headers_too_large", message)
        if exchange.query_string:
            exchange.query()
        given = exchange.headers
        host = given.get(b"host")
        if host is None or (len(given) != len(headers) and [*map(_name, headers)].count(b"host") > 1):
            raise HttpError(400, "invalid_host", "The request must have exactly one Host header.")
        if host not in self._known:
            self._check_host(host)
        if given.get(b"content-type") == b"application/json" and _DOUBTFUL.isdisjoint(given):
            return
        if b"origin" in given or b"sec-fetch-site" in given:
            _check_origin(exchange)
        if exchange.method in _BODY_METHODS:
            _check_content(exchange)

    def _check_host(self, given: bytes) -> None:
        host = _hostname(given)
        if not host or not (is_loopback(host) or host in self._hosts):
            raise Forbidden(
                "This server does not answer to the name in the Host header.",
                code="host_not_allowed",
                hint="Use localhost, or add the name to server.allowed_hosts in the configuration.",
            )
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known.add(given)


def _check_origin(exchange: Exchange) -> None:
    """Reject what a browser sends for another origin; programs send none of these headers."""
    origin = exchange.header(b"origin")
    if origin and not _is_same_origin(origin, exchange.header(b"host")):
        raise _foreign("another origin")
    if exchange.method not in _SAFE_METHODS and exchange.header(b"sec-fetch-site") == "cross-site":
        raise _foreign("another site")


def _check_content(exchange: Exchange) -> None:
    headers = exchange.headers
    if headers.get(b"content-encoding", b"").lower() not in (b"", b"identity"):
        raise HttpError(415, "unsupported_encoding", "Request bodies must not be compressed.")
    kind = exchange.header(b"content-type").partition(";")[0].strip().lower()
    if kind == "application/json":
        return
    # A program that forgot the header, or sends a type with no body at all (`curl -d ''`), is harmless; a browser sends
    # such a request without asking us first.
    if (not kind or _has_no_body(headers)) and headers.keys().isdisjoint(_BROWSER_MARKS):
        return
    raise HttpError(
        415,
        "unsupported_media_type",
        "The body must be sent as Content-Type: application/json.",
        hint="With curl, add -H 'content-type: application/json'.",
    )


def _has_no_body(headers: Mapping[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"")
    return length.isdigit() and not int(length) and b"transfer-encoding" not in headers


def _is_same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


@functools.lru_cache(maxsize=256)
def _hostname(given: bytes) -> str:
    """Return the name in a Host header without its port, lower case; empty when it is malformed."""
    host = given.decode("latin-1")
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return ""
    if parts.netloc != host or "@" in host:
        return ""
    return (parts.hostname or "").lower()


def _foreign(what: str) -> Forbidden:
    return Forbidden(
        f"The request was sent by a page of {what}.",
        code="origin_not_allowed",
        hint="Call the server from a program, or open its own page.",
    )
