"""Collects the ports that tools may not connect to: the server's own, and those of its database, Redis and Temporal."""

from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from treadle.config import Settings
from treadle.config.loader import data_directory
from treadle.journal.store_url import is_postgres
from treadle.tools.blocked_ports import OwnPorts

FOLDER = "listeners"
POSTGRES_PORT, REDIS_PORT = 5432, 6379


def make_own_ports(settings: Settings, env: Mapping[str, str]) -> OwnPorts:
    """Return the ports of an installation."""
    return OwnPorts(data_directory(env) / FOLDER, [settings.server.port], _services(settings, env))


def _services(settings: Settings, env: Mapping[str, str]) -> Iterator[int]:
    if is_postgres(settings.store.url):
        yield from _ports_of(settings.store.url, _number(env.get("PGPORT", ""), POSTGRES_PORT))
    if settings.rates.url:
        yield from _ports_of(settings.rates.url, REDIS_PORT)
    if settings.runner.kind == "temporal":
        yield _number(settings.runner.temporal.rpartition(":")[2], 0)


def _ports_of(url: str, default: int) -> Iterator[int]:
    """Yield the ports of a URL: PostgreSQL allows several hosts, and ports in the query."""
    parts = urlsplit(url)
    for host in parts.netloc.rpartition("@")[2].split(","):
        yield _number(host.rpartition("]")[2].rpartition(":")[2], default)
    for name, value in parse_qsl(parts.query):
        if name == "port":
            yield from (_number(each, default) for each in value.split(","))


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and int(text) < 65_536 else default
