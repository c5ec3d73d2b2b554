"""An endpoint: one provider's address, key and time limits, as data.

It validates at construction what would only fail later on the network, such as a URL without a host or a key with a
line break. It must not show its key: not in a repr, an error, or its encoded form.
"""

import hmac
import ipaddress
import re
from collections.abc import Mapping
from functools import cached_property
from urllib.parse import urlsplit

import msgspec

from treadle.core.errors import ConfigError
from treadle.protocols.decoding.answer_meter import AnswerBounds
from treadle.protocols.protocol_registry import CHAT, PROTOCOLS, ProtocolName
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.quirk_table import QuirkProfile, check_quirks, profile_of

SECRET_CHARS_MIN = 8
"""Shorter header values are words like `beta`, not secrets."""


class Secret:
    """A value that only `reveal` shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('…')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)


_ALWAYS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream, application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "treadle",
}
"""Sent with every request. A compressed stream would delay small events until a block is full."""

_VERSION = re.compile(r"v[0-9]\w*")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One upstream. `models` are the names it serves, each with at most one `*`; `key_env` is shown in hints.

    `quirks` are quirks and presets in addition to those of its host; a leading `-` turns one off.
    """

    name: str
    base_url: str
    protocol: ProtocolName = CHAT
    key: Secret | None = None
    key_env: str | None = None
    headers: dict[str, str] = {}
    models: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()
    repair: RepairRules = RepairRules()
    connect_s: float = 10.0
    idle_s: float = 120.0
    streams_max: int = 0
    answer_bytes_max: int = 16_777_216
    arguments_bytes_max: int = 4_194_304

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises: ConfigError.
        """
        _check_name(self.name)
        _check_url(self.base_url)
        for pattern in self.models:
            check_pattern(pattern)
        check_quirks(self.quirks)
        if self.key is not None:
            _check_header(self.key.reveal(), self.key_env or "key")
        for name, value in self.headers.items():
            _check_header(name, "headers")
            _check_header(value, f"headers.{name}")
        for field in ("connect_s", "idle_s"):
            if not getattr(self, field) > 0:
                raise ConfigError(f"{field} must be more than 0 seconds", param=field)

    def __repr__(self) -> str:
        """Without the key and the headers, which may contain one."""
        return f"Endpoint(name={self.name!r}, protocol={self.protocol!r}, base_url={self.base_url!r})"

    @cached_property
    def bounds(self) -> AnswerBounds:
        """Return the size limits of one answer."""
        return AnswerBounds(text_bytes_max=self.answer_bytes_max, arguments_bytes_max=self.arguments_bytes_max)

    @cached_property
    def host(self) -> str:
        """Return the host and port, for messages."""
        return urlsplit(self.base_url).netloc

    @cached_property
    def is_loopback(self) -> bool:
        """Return whether the endpoint is on this machine."""
        name = urlsplit(self.base_url).hostname or ""
        try:
            return name == "localhost" or ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def url(self, path: str) -> str:
        """Return the URL of a path under the base URL, with the protocol's version if the base URL has none.

        Clients of Anthropic and Gemini are configured with the root, those of OpenAI with the version.
        """
        base = self.base_url.rstrip("/")
        version = PROTOCOLS[self.protocol].version
        if version and not _VERSION.fullmatch(base.rpartition("/")[2]):
            base = f"{base}/{version}"
        return f"{base}/{path.lstrip('/')}"

    def profile(self, model: str) -> QuirkProfile:
        """Return the combined quirks of this host for one of its models."""
        return profile_of(self.protocol, self.host, model, self.quirks)

    @cached_property
    def sent_headers(self) -> Mapping[str, str]:
        """Return the headers of every request."""
        return {**_ALWAYS, **self.request_headers}

    @cached_property
    def request_headers(self) -> Mapping[str, str]:
        """Return the headers of its protocol, with the key, and then the configured ones, which override them."""
        row = PROTOCOLS[self.protocol]
        headers = dict(row.headers)
        if self.key is not None:
            headers |= row.key_headers(self.key.reveal(), self.profile("").key_header)
        given = {name.lower() for name in self.headers}
        return {name: value for name, value in headers.items() if name.lower() not in given} | self.headers

    def redact(self, text: str) -> str:
        """Remove the key and secret header values from a text."""
        secrets = [value for value in self.headers.values() if len(value) >= SECRET_CHARS_MIN]
        if self.key is not None and self.key.reveal():
            secrets.append(self.key.reveal())
        for secret in secrets:
            text = text.replace(secret, "[redacted]")
        return text


def check_pattern(pattern: str) -> None:
    """Refuse an empty pattern or one with several `*`: with one, matching is linear and unambiguous.

    Raises: ConfigError.
    """
    if not pattern or pattern.count("*") > 1:
        raise ConfigError(f"model pattern {pattern!r} must be a name with at most one '*'", param="models")


def _check_name(name: str) -> None:
    if not name or "/" in name:
        raise ConfigError(f"upstream name {name!r} must be a word without '/'", param="name")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    try:
        is_usable = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        is_usable = False
    if parts.username is not None or parts.password is not None:
        raise ConfigError("base_url must not hold a user or password; name a key by `key_env`", param="base_url")
    if not is_usable or parts.query or parts.fragment:
        raise ConfigError(
            f"base_url {url!r} must be http:// or https:// with a host and no query",
            param="base_url",
            hint="for example https://api.openai.com/v1",
        )


def _check_header(value: str, param: str) -> None:
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{param} holds a line break or another character that no HTTP header may hold", param=param)
