"""Addresses of stores: read, checked, and shown without their password. Nothing here opens anything."""

import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from treadle.core.errors import ConfigError

MEMORY = ":memory:"
"""A SQLite database that lasts as long as its store."""
POSTGRES = ("postgresql://", "postgres://")
SCHEMA = "treadle"
POOL_SIZE = 16
POOL_SIZE_MAX = 500
PASSWORD_ENV = "PGPASSWORD"
"""The variable that PostgreSQL's own programs read a password from."""

_PASSWORD = re.compile(r"^(\w+://[^:@/?#]*):.*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"([?&](?:password|sslpassword)=)[^&]*", re.IGNORECASE)
_SCHEMA_BYTES_MAX = 63
"""PostgreSQL cuts longer names off without a word."""
_RESERVED = "pg_"
"""How the names of PostgreSQL's own schemas begin."""


class PostgresAddress:
    """A database, the schema in it, and the size of its connection pool. Its text never has the password."""

    def __init__(self, url: str, *, password: str = "") -> None:
        self.shown = shown_url(url)
        try:
            parts = urlsplit(url)
            options = parse_qsl(parts.query, keep_blank_values=True)
        except ValueError:
            raise _wrong(self.shown, "it cannot be read; write %5B and %5D for brackets in it") from None
        ours = {name: value for name, value in options if name in ("schema", "pool_size")}
        rest = [(name, value) for name, value in options if name not in ours]
        self.dsn = parts._replace(query=urlencode(rest)).geturl()
        self.schema = ours.get("schema", SCHEMA)
        self.pool_size = _pool_size(ours.get("pool_size", str(POOL_SIZE)), self.shown)
        self.password = None if parts.password or "password" in dict(rest) else password or None
        if not _is_schema_name(self.schema):
            raise _wrong(self.shown, "schema must be 1 to 63 printable bytes, and begin neither with pg_ nor with $")
        if not parts.hostname and "host" not in dict(rest) and parts.netloc.rpartition("@")[2]:
            raise _wrong(self.shown, "the host is missing")

    @property
    def quoted_schema(self) -> str:
        """Return the name of the schema as it stands in SQL, whatever is in it."""
        return '"' + self.schema.replace('"', '""') + '"'

    @property
    def secrets(self) -> list[str]:
        """Return what must never be shown, as it is and as an address spells it."""
        parts = urlsplit(self.dsn)
        options = dict(parse_qsl(parts.query))
        words = (self.password, parts.password, unquote(parts.password or ""), options.get("password"))
        return list(dict.fromkeys(word for word in words if word))

    def __repr__(self) -> str:
        return f"PostgresAddress({self.shown})"


def is_postgres(url: str) -> bool:
    """Return whether an address names a PostgreSQL database."""
    return url.startswith(POSTGRES)


def shown_url(url: str) -> str:
    """Return an address as it may be printed and logged: three stars stand for a password."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def _is_schema_name(name: str) -> bool:
    is_named = name.isprintable() and 1 <= len(name.encode("utf-8", "replace")) <= _SCHEMA_BYTES_MAX
    return is_named and not name.startswith((_RESERVED, "$"))


def _pool_size(text: str, shown: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= POOL_SIZE_MAX:
        raise _wrong(shown, f"pool_size must be a number from 1 to {POOL_SIZE_MAX}")
    return int(text)


def _wrong(shown: str, what: str) -> ConfigError:
    hint = "for example postgresql://treadle@db.example.org/treadle?schema=treadle, with the password in PGPASSWORD"
    return ConfigError(f"the store {shown}: {what}", param="store.url", hint=hint)
