"""Describes what a file would do, as lines for the person who decides whether to trust it. Pure.

Every key that a file sets is listed: those that start programs, contact others or loosen a rule on lines of their own,
the others by name in the last line.
"""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

import msgspec

from treadle.config.repository_file import TIGHTER
from treadle.config.settings import CASSETTE, Guest, Mcp, Settings, Upstream
from treadle.journal.store_url import is_postgres, shown_url

GRAVE = (
    "approvals.",
    "keys.",
    "policy.",
    "rates.proxies",
    "repair.effects",
    "server.allow_remote",
    "server.allowed_hosts",
    "server.evals",
    "server.host",
    "server.login",
    "server.mcp",
    "store.persistence",
    "terminal.local",
    "terminal.policy",
    "tools.collision",
    "tools.enabled",
    "tools.local.",
    "tools.web.",
)
"""Keys that change who may do what; those that only tighten are left to the last line."""


def list_effects(settings: Settings, keys: Collection[str]) -> list[str]:
    """Return what settings would do that were read from one file alone, which sets these keys."""
    lines = [line for summarize in _SUMMARIES.values() for line in summarize(settings)]
    plain: dict[str, object] = msgspec.to_builtins(settings)
    standing: dict[str, object] = msgspec.to_builtins(Settings())
    rest: list[str] = []
    for key in keys:
        if key.startswith(tuple(_SUMMARIES)):
            continue
        if key.startswith(GRAVE) and not _is_tighter(key, plain, standing):
            lines.append(f"set {key} = {_text(_at(plain, key))} (default {_text(_at(standing, key))})")
        else:
            rest.append(key.partition("[")[0])
    if rest:
        lines.append(f"set also {', '.join(dict.fromkeys(rest))}")
    return lines


def _upstreams(settings: Settings) -> Iterable[str]:
    return map(_upstream, settings.upstream)


def _upstream(upstream: Upstream) -> str:
    if upstream.base_url.startswith(CASSETTE):
        return f"play the recording {upstream.base_url.removeprefix(CASSETTE)} as the upstream {upstream.name}"
    key = f", with the key in {upstream.key_env}" if upstream.key_env else ""
    headers = f", with the headers {', '.join(upstream.headers)}" if upstream.headers else ""
    return f"send conversations to {upstream.base_url} (the upstream {upstream.name}){key}{headers}"


def _servers(settings: Settings) -> Iterable[str]:
    return map(_server, settings.mcp)


def _server(server: Mcp) -> str:
    if not server.command:
        variables = [name for name in (server.key_env, *server.headers_env.values()) if name]
        return f"connect to the MCP server {server.url}{_with('with the variables', variables)}{_trust_text(server)}"
    words = f"start the program `{shlex.join(server.command)}`"
    place = f" in {server.cwd}" if server.cwd else ""
    given = _with("with the variables", [*server.env_from, *(f"{name}={value}" for name, value in server.env.items())])
    return f"{words}{place}{given}{_trust_text(server)} (the MCP server {server.name})"


def _trust_text(server: Mcp) -> str:
    words = ["believing its hints"] if server.trusted else []
    words += ["asking nobody before its tools run"] if server.approval == "never" else []
    return "".join(f", {word}" for word in words)


def _guests(settings: Settings) -> Iterable[str]:
    return map(_guest, settings.guest)


def _guest(guest: Guest) -> str:
    folders = f"{_with('reading', guest.wasi_read)}{_with('writing', guest.wasi_write)}"
    return f"run the WASM guest {guest.path}{folders}{_with('with the variables', guest.wasi_env)}"


def _python(settings: Settings) -> Iterable[str]:
    return (f"run the Python of {name}" for name in settings.tools.load)


def _rules(settings: Settings) -> Iterable[str]:
    for rule in settings.tools.rule:
        fields = {name: value for name, value in msgspec.structs.asdict(rule).items() if value not in (None, "")}
        patterns = ", ".join(cast("tuple[str, ...]", fields.pop("match")))
        words = ", ".join(f"{name} = {_text(value)}" for name, value in fields.items())
        yield f"rule that the tools {patterns} have {words or 'nothing new'}"


def _store(settings: Settings) -> Iterable[str]:
    if url := settings.store.url:
        password = f", with the password in {settings.store.password_env}" if is_postgres(url) else ""
        yield f"keep the journal in {shown_url(url)}{password}"


def _record(settings: Settings) -> Iterable[str]:
    if settings.record:
        yield f"write every model call into {settings.record}"


def _spans(settings: Settings) -> Iterable[str]:
    if settings.telemetry.spans:
        yield f"send spans to {settings.telemetry.otlp_endpoint or 'OTEL_EXPORTER_OTLP_ENDPOINT'}"


def _rates(settings: Settings) -> Iterable[str]:
    if settings.rates.url:
        yield f"count requests at {shown_url(settings.rates.url)}, with the password in {settings.rates.password_env}"


def _runner(settings: Settings) -> Iterable[str]:
    if settings.runner.kind == "temporal":
        key = f", with the key in {settings.runner.key_env}" if settings.runner.key_env else ""
        yield f"have runs placed by {settings.runner.temporal}{key}"


_SUMMARIES: Mapping[str, Callable[[Settings], Iterable[str]]] = {
    "mcp[": _servers,
    "tools.load": _python,
    "guest[": _guests,
    "upstream[": _upstreams,
    "tools.rule[": _rules,
    "store.url": _store,
    "record": _record,
    "telemetry.": _spans,
    "rates.url": _rates,
    "runner.": _runner,
}
"""Summaries by the prefix of their keys, most serious first."""


def _is_tighter(key: str, plain: Mapping[str, object], standing: Mapping[str, object]) -> bool:
    judge = TIGHTER.get(key)
    return judge is not None and judge(_at(plain, key), _at(standing, key))


def _at(tree: Mapping[str, object], key: str) -> Any:
    value: Any = tree
    for step in key.split("."):
        value = value[step]
    return value


def _with(what: str, names: Collection[str]) -> str:
    return f", {what} {', '.join(names)}" if names else ""


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
