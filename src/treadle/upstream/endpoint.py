"""An endpoint: one provider's address, key and time limits, as data.

It refuses at birth what could only fail later on the wire (a URL without a host, a key with a line break).
It must not show its key: not in a repr, not in an error, not when it is encoded.
"""

import hmac
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from treadle.canon.errors import ConfigError

ProtocolName = Literal["chat"]

SECRET_CHARS_MIN = 8
"""A header's value shorter than this is a word like `beta`, not a secret."""


class Secret:
    """A value that does not show itself; only `reveal` gives it away."""

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


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream. `models` are the names it serves, each with at most one `*`; `key_env` is named in hints."""

    name: str
    base_url: str
    protocol: ProtocolName = "chat"
    key: Secret | None = None
    key_env: str | None = None
    headers: dict[str, str] = {}
    models: tuple[str, ...] = ()
    connect_s: float = 10.0
    idle_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises: ConfigError.
        """
        _check_name(self.name)
        _check_url(self.base_url)
        for pattern in self.models:
            check_pattern(pattern)
        if self.key is not None:
            _check_header(self.key.reveal(), self.key_env or "key")
        for name, value in self.headers.items():
            _check_header(name, "headers")
            _check_header(value, f"headers.{name}")
        for field in ("connect_s", "idle_s"):
            if not getattr(self, field) > 0:
                raise ConfigError(f"{field} must be more than 0 seconds", param=field)

    def __repr__(self) -> str:
        """Show what a log may show: neither the key nor headers, which may hold one."""
        return f"Endpoint(name={self.name!r}, protocol={self.protocol!r}, base_url={self.base_url!r})"

    @property
    def host(self) -> str:
        """Return the host and port, for people."""
        return urlsplit(self.base_url).netloc

    def url(self, path: str) -> str:
        """Return the address of a path under the base URL."""
        return f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"

    def redact(self, text: str) -> str:
        """Take the key out of a text that came from outside."""
        secrets = [value for value in self.headers.values() if len(value) >= SECRET_CHARS_MIN]
        if self.key is not None and self.key.reveal():
            secrets.append(self.key.reveal())
        for secret in secrets:
            text = text.replace(secret, "[redacted]")
        return text


def check_pattern(pattern: str) -> None:
    """Refuse a model pattern that is empty or has more than one `*`: one keeps matching linear and unambiguous.

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
