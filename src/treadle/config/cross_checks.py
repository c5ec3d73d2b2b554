"""Checks across settings: values that are valid each by itself and cannot work together.

Takes settings that already decoded, returns problems; reads nothing.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from treadle.config.error_messages import KEY_HINT, Problem, nearest, origin_of
from treadle.config.settings import CASSETTE, DEMO_MODEL, SQLITE, TIERS, Mcp, Settings, ToolRule, Upstream
from treadle.core.errors import ConfigError, NotFound
from treadle.journal.store_url import PostgresAddress, is_postgres
from treadle.protocols.text_calls.dialect_table import BY_ID

POLICY_LEAST = {"timeout_s": 0.001, "retries": 0, "output_bytes_max": 256, "rate_per_min": 0}
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_OWN_PATH = re.compile(r"/+(chat/completions|completions|responses|messages|models(/[^/]*)?)/*$")
"""What clients put behind an address, and people copy along with it."""


def find_contradictions(settings: Settings, origins: Mapping[str, str]) -> list[Problem]:
    """Return everything that can not work although every single value is of the right type."""
    problems = [
        *_server_problems(settings),
        *_store_problems(settings),
        *_repair_problems(settings),
        *_upstream_problems(settings),
        *_route_problems(settings),
        *_price_problems(settings),
        *_rate_problems(settings),
        *_telemetry_problems(settings),
        *_guest_problems(settings),
        *_mcp_problems(settings),
        *_tool_problems(settings),
        *_policy_problems(settings),
    ]
    return [msgspec.structs.replace(problem, origin=_origin(problem.path, origins)) for problem in problems]


def check_model(settings: Settings) -> None:
    """Refuse a model that no upstream serves: without an upstream there is only the demo model, and it is no other.

    Raises: NotFound.
    """
    if not settings.upstream and settings.model != DEMO_MODEL:
        raise NotFound(
            f"no upstream serves {settings.model!r}",
            param="model",
            hint="set OPENAI_API_KEY (or another provider's key) or write an [[upstream]]; -m demo needs neither",
        )


def _origin(path: str, origins: Mapping[str, str]) -> str:
    steps = path.replace("[", ".").replace("]", "").split(".")
    return origin_of(tuple(int(step) if step.isdecimal() else step for step in steps), origins)


def _server_problems(settings: Settings) -> Iterable[Problem]:
    server = settings.server
    if not server.allow_remote and not is_loopback(server.host):
        hint = "server.allow_remote = true (or --allow-remote) says that this is meant"
        yield Problem(path="server.host", message=f"{server.host} can be reached from other machines", hint=hint)
    if server.workers > 1 and settings.store.persistence == "off":
        hint = 'store.persistence = "on", or server.workers = 1'
        yield Problem(path="server.workers", message="several workers need a journal that they share", hint=hint)
    if server.workers > 1 and settings.record:
        yield Problem(path="server.workers", message="only one process can record", hint="server.workers = 1")
    if settings.runner.kind == "temporal" and settings.store.persistence == "off":
        yield Problem(path="runner.kind", message="Temporal places runs that are kept", hint='store.persistence = "on"')
    if (name := settings.runner.key_env) and not _VARIABLE.match(name):
        yield Problem(path="runner.key_env", message="is not the name of an environment variable", hint=KEY_HINT)


def _store_problems(settings: Settings) -> Iterable[Problem]:
    url = settings.store.url
    if not _VARIABLE.match(settings.store.password_env):
        yield Problem(path="store.password_env", message="is not the name of an environment variable")
    if is_postgres(url):
        try:
            PostgresAddress(url)
        except ConfigError as error:
            yield Problem(path="store.url", message=error.message, hint=error.hint)
    elif not url.startswith(SQLITE) or url == SQLITE:
        hint = "sqlite:///data.db is a file here, sqlite:////var/lib/treadle.db one at an absolute path"
        message = "is not sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        yield Problem(path="store.url", message=message, hint=hint)


def _repair_problems(settings: Settings) -> Iterable[Problem]:
    yield from _dialect_problems("repair.dialects", settings.repair.dialects, ())
    for index, upstream in enumerate(settings.upstream):
        yield from _dialect_problems(f"upstream[{index}].repair", upstream.repair or (), TIERS)
    for index, route in enumerate(settings.route):
        yield from _dialect_problems(f"route[{index}].repair", route.repair or (), TIERS)


def _dialect_problems(path: str, names: Iterable[str], more: tuple[str, ...]) -> Iterable[Problem]:
    for number, name in enumerate(names):
        if name.removeprefix("-") not in BY_ID and name not in more:
            near = nearest(name.removeprefix("-"), [*BY_ID, *more])
            hint = f"did you mean {near!r}?" if near else "`treadle dialects` lists them"
            yield Problem(path=f"{path}[{number}]", message=f"there is no dialect {name!r}", hint=hint)


def _upstream_problems(settings: Settings) -> Iterable[Problem]:
    names = {DEMO_MODEL}
    for index, upstream in enumerate(settings.upstream):
        path = f"upstream[{index}]"
        if upstream.name in names:
            yield Problem(path=f"{path}.name", message=f"the name {upstream.name!r} is taken")
        names.add(upstream.name)
        yield from _endpoint_problems(path, upstream)


def _endpoint_problems(path: str, upstream: Upstream) -> Iterable[Problem]:
    if upstream.base_url.startswith(CASSETTE):
        if upstream.base_url == CASSETTE:
            yield Problem(path=f"{path}.base_url", message="names no cassette", hint="cassette:FILE or cassette:FOLDER")
    elif not _is_http(upstream.base_url):
        message = "is not an http:// or https:// address with a host and without user name or query"
        yield Problem(path=f"{path}.base_url", message=message, hint="for example https://api.openai.com/v1")
    elif own := _OWN_PATH.search(upstream.base_url):
        hint = f"write {upstream.base_url[: own.start()]}"
        yield Problem(path=f"{path}.base_url", message=f"ends in the endpoint's own path {own[0]}", hint=hint)
    if upstream.key_env is not None and not _VARIABLE.match(upstream.key_env):
        yield Problem(path=f"{path}.key_env", message="is not the name of an environment variable", hint=KEY_HINT)
    if upstream.idle_s is not None and upstream.idle_s <= 0:
        yield Problem(path=f"{path}.idle_s", message="expected a number > 0")
    for number, pattern in enumerate(upstream.models):
        yield from _pattern_problems(f"{path}.models[{number}]", pattern)
    for name, value in upstream.headers.items():
        if not (name + value).isascii() or not (name + value).isprintable():
            message = "holds a line break or another character that no HTTP header may hold"
            yield Problem(path=f"{path}.headers.{name!r}", message=message)


def _route_problems(settings: Settings) -> Iterable[Problem]:
    names = [upstream.name for upstream in settings.upstream]
    for index, route in enumerate(settings.route):
        yield from _pattern_problems(f"route[{index}].model", route.model)
        if route.upstream not in names:
            near = nearest(route.upstream, names)
            known = f"did you mean {near}?" if near else f"known: {', '.join(names) or 'none'}"
            message = f"there is no upstream {route.upstream!r}; {known}"
            yield Problem(path=f"route[{index}].upstream", message=message)


def _price_problems(settings: Settings) -> Iterable[Problem]:
    for index, price in enumerate(settings.price):
        yield from _pattern_problems(f"price[{index}].model", price.model)
        for key in ("cached", "cache_write"):
            if (getattr(price, key) or 0.0) < 0:
                yield Problem(path=f"price[{index}].{key}", message="expected a number >= 0")


def _rate_problems(settings: Settings) -> Iterable[Problem]:
    url = settings.rates.url
    if url and not url.startswith(("redis://", "rediss://", "valkey://", "valkeys://", "unix://")):
        yield Problem(path="rates.url", message="is not redis://HOST:PORT/DB or valkey://HOST:PORT/DB")
    elif "@" in url:
        yield Problem(path="rates.url", message="holds a password", hint="rates.password_env names its variable")
    for number, text in enumerate(settings.rates.proxies):
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            yield Problem(path=f"rates.proxies[{number}]", message=str(error), hint="for example 10.0.0.0/8")


def _telemetry_problems(settings: Settings) -> Iterable[Problem]:
    endpoint = settings.telemetry.otlp_endpoint
    if endpoint and not _is_http(endpoint):
        message = "is not an http:// or https:// address with a host and without user name or query"
        yield Problem(path="telemetry.otlp_endpoint", message=message, hint="for example http://127.0.0.1:4318")


def _policy_problems(settings: Settings) -> Iterable[Problem]:
    tables: list[tuple[str, ToolRule]] = []
    for key in ("rule", "tighten"):
        tables += [(f"tools.{key}[{index}]", rule) for index, rule in enumerate(getattr(settings.tools, key))]
    for path, table in tables:
        for key, least in POLICY_LEAST.items():
            value = getattr(table, key)
            if value is not None and value < least:
                yield Problem(path=f"{path}.{key}", message=f"expected a number >= {least:g}")


def _tool_problems(settings: Settings) -> Iterable[Problem]:
    for key in ("read", "write"):
        for number, path in enumerate(getattr(settings.tools.local, key)):
            if not path.startswith("/"):
                yield Problem(path=f"tools.local.{key}[{number}]", message=f"{path!r} is not an absolute path")
    for number, text in enumerate(settings.tools.web.networks):
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            yield Problem(path=f"tools.web.networks[{number}]", message=str(error), hint="for example 10.1.0.0/16")


GUEST_WASI = ("wasi_read", "wasi_write", "wasi_env", "wasi_args")


def _guest_problems(settings: Settings) -> Iterable[Problem]:
    names: set[str] = set()
    for index, guest in enumerate(settings.guest):
        if guest.name in names:
            yield Problem(path=f"guest[{index}].name", message=f"the name {guest.name!r} is taken")
        names.add(guest.name)
        if guest.kind == "tools" and guest.grants:
            yield Problem(path=f"guest[{index}].grants", message="only a session guest can be granted tools")
        granted = [key for key in GUEST_WASI if getattr(guest, key)]
        if granted and (guest.isolation or settings.guests.isolation) != "process":
            message = f'{granted[0]} needs isolation = "process": the real WASI is only for a process of its own'
            yield Problem(path=f"guest[{index}].isolation", message=message)


def _mcp_problems(settings: Settings) -> Iterable[Problem]:
    names: set[str] = set()
    for index, server in enumerate(settings.mcp):
        path = f"mcp[{index}]"
        if server.name in names:
            yield Problem(path=f"{path}.name", message=f"the name {server.name!r} is taken")
        names.add(server.name)
        if bool(server.command) == bool(server.url):
            hint = 'command = ["program", "argument"] starts one here, url = "https://…/mcp" reaches one elsewhere'
            yield Problem(path=path, message="expected either a command or a url", hint=hint)
        elif server.url:
            yield from _mcp_url_problems(path, server)
        elif not server.command[0]:
            yield Problem(path=f"{path}.command", message="names no program")
        variables = {"key_env": (server.key_env,) if server.key_env else (), "env_from": server.env_from}
        for key, listed in (*variables.items(), ("headers_env", tuple(server.headers_env.values()))):
            if not all(_VARIABLE.match(name) for name in listed):
                yield Problem(path=f"{path}.{key}", message="is not the name of an environment variable", hint=KEY_HINT)


def _mcp_url_problems(path: str, server: Mcp) -> Iterable[Problem]:
    if not _is_http(server.url):
        message = "is not an http:// or https:// address with a host and without user name or query"
        yield Problem(path=f"{path}.url", message=message)
        return
    is_plain = server.url.startswith("http:") and not is_loopback(urlsplit(server.url).hostname or "")
    if is_plain and (server.key_env or server.headers_env):
        yield Problem(path=f"{path}.url", message="would send a key over plain http", hint="use https")


def _pattern_problems(path: str, pattern: str) -> Iterable[Problem]:
    """A single `*` makes matching linear and unambiguous."""
    if not pattern or pattern.count("*") > 1:
        yield Problem(path=path, message="expected a model name with at most one *")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return has_host and parts.username is None and not parts.query and not parts.fragment


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
