"""The checks of `treadle doctor`: each looks at one thing and says what it found. None of them changes anything."""

import asyncio
import ctypes
import errno
import os
import platform
import re
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from treadle.canon.errors import ConfigError, StoreError, TreadleError
from treadle.config import Settings, Upstream, sqlite_path
from treadle.config.environment import PROVIDERS
from treadle.config.settings import CASSETTE
from treadle.store.address import PostgresAddress, is_postgres
from treadle.store.open import look_at_store

PYTHON_MIN = (3, 11)
PROBE_S = 3.0
"""How long an upstream may take to answer."""

_SQLITE_MAGIC = b"SQLite format 3\x00"
_OPENAT2 = 437
SANDBOX_WANTED = 2


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found. `advice` says what to do about it."""

    name: str
    state: Literal["ok", "note", "broken"]
    detail: str
    advice: str = ""


def check_machine() -> list[Check]:
    """Look at what does not depend on any setting."""
    return [check_python(), check_packages(), check_openat2(), check_sandbox()]


def check_settings(settings: Settings, env: Mapping[str, str], *, is_offline: bool) -> list[Check]:
    """Look at what the settings name, in the order in which a person would mend things."""
    return [
        check_store(settings, env, is_offline=is_offline),
        *check_upstreams(settings, env, is_offline=is_offline),
        check_tools(settings),
        check_port(settings),
        check_keys(settings, env),
    ]


def check_python() -> Check:
    """Look at the interpreter."""
    version = platform.python_version()
    if sys.version_info[:2] < PYTHON_MIN:
        return Check(name="python", state="broken", detail=version, advice="install Python 3.11 or newer")
    return Check(name="python", state="ok", detail=f"{version} on {platform.system()} {platform.machine()}")


def check_packages() -> Check:
    """Look whether what the base install needs is there."""
    try:
        wanted = metadata.requires("treadle") or []
    except metadata.PackageNotFoundError:
        return Check(name="packages", state="broken", detail="treadle is not installed", advice="pip install -e .")
    names = [_requirement_name(line) for line in wanted if "extra ==" not in line]
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        return Check(name="packages", state="broken", detail=f"missing: {', '.join(missing)}", advice="make setup")
    return Check(name="packages", state="ok", detail=f"treadle {metadata.version('treadle')}, {len(names)} packages")


def check_store(settings: Settings, env: Mapping[str, str] | None = None, *, is_offline: bool = False) -> Check:
    """Look whether the journal can be written, without making it."""
    if settings.store.persistence == "off":
        return Check(name="store", state="note", detail="persistence is off: runs are kept only while they last")
    if is_postgres(settings.store.url):
        return _check_postgres(settings, env or {}, is_offline=is_offline)
    path = sqlite_path(settings.store.url)
    if problem := _write_problem(path):
        advice = "name another file: --store sqlite:///FILE, or store.url in treadle.toml"
        return Check(name="store", state="broken", detail=f"{path} can not be written: {problem}", advice=advice)
    if not path.exists():
        return Check(name="store", state="ok", detail=f"{path} (will be made)")
    with path.open("rb") as file:
        head = file.read(len(_SQLITE_MAGIC))
    if head and head != _SQLITE_MAGIC:
        advice = "move it away, or name another file in store.url"
        return Check(name="store", state="broken", detail=f"{path} is not a SQLite database", advice=advice)
    return Check(name="store", state="ok", detail=f"{path}, {path.stat().st_size / 1_048_576:.1f} MiB")


def _check_postgres(settings: Settings, env: Mapping[str, str], *, is_offline: bool) -> Check:
    """Ask PostgreSQL for its version and that of our schema."""
    address = PostgresAddress(settings.store.url, password=env.get(settings.store.password_env, ""))
    if is_offline:
        return Check(name="store", state="note", detail=f"{address.shown}, not asked")
    try:
        detail = asyncio.run(look_at_store(address))
    except StoreError as error:
        return Check(name="store", state="broken", detail=error.message, advice=error.hint or "")
    return Check(name="store", state="ok", detail=f"{address.shown}, {detail}")


def _write_problem(path: Path) -> str:
    """Say why a file can not be written; SQLite also needs its folder.

    Permissions do not tell: root has them all, and still can make nothing in /proc. A file without a name does.
    """
    if path.is_dir():
        return "it is a folder"
    if path.exists() and not os.access(path, os.W_OK):
        return os.strerror(errno.EACCES)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


def check_upstreams(settings: Settings, env: Mapping[str, str], *, is_offline: bool) -> list[Check]:
    """Ask every upstream for its models, all at once."""
    if not settings.upstream:
        keys = ", ".join(provider.key_env for provider in PROVIDERS)
        advice = f"for a real model set one of {keys}, OPENAI_BASE_URL for one without a key, or write an [[upstream]]"
        return [Check(name="upstream", state="note", detail="none: the demo model answers", advice=advice)]
    with ThreadPoolExecutor(len(settings.upstream)) as pool:
        asked = [pool.submit(check_upstream, each, env, is_offline=is_offline) for each in settings.upstream]
        return [future.result() for future in asked]


def check_upstream(upstream: Upstream, env: Mapping[str, str], *, is_offline: bool) -> Check:
    """Look whether an upstream has its key and answers."""
    name = f"upstream {upstream.name}"
    key = env.get(upstream.key_env, "") if upstream.key_env else ""
    if upstream.key_env and not key:
        advice = f"export {upstream.key_env}=…"
        return Check(name=name, state="broken", detail=f"{upstream.key_env} is unset", advice=advice)
    if upstream.base_url.startswith(CASSETTE):
        return _check_cassette(name, upstream)
    told = f"{upstream.key_env} is set" if upstream.key_env else f"without a key{_unset_key(upstream, env)}"
    if is_offline:
        return Check(name=name, state="note", detail=f"{upstream.base_url}, {told}, not asked")
    return _probe(name, upstream, key, told)


def _check_cassette(name: str, upstream: Upstream) -> Check:
    """Look whether a recording can be played."""
    from treadle.upstream.cassette import load_cassette

    try:
        cassette = load_cassette(Path(upstream.base_url.removeprefix(CASSETTE)).expanduser(), upstream.name)
    except ConfigError as error:
        return Check(name=name, state="broken", detail=error.message, advice=error.hint or "")
    return Check(name=name, state="ok", detail=f"{upstream.base_url}, {len(cassette.calls)} recorded calls")


def _unset_key(upstream: Upstream, env: Mapping[str, str]) -> str:
    """Name the variable that would give a key to an upstream made by its address alone."""
    names = [each.key_env for each in PROVIDERS if each.name == upstream.name and not env.get(each.key_env)]
    return f" ({names[0]} is unset)" if names else ""


_AUTH: dict[str, Callable[[str], dict[str, str]]] = {
    "chat": lambda key: {"authorization": f"Bearer {key}"},
    "responses": lambda key: {"authorization": f"Bearer {key}"},
    "messages": lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
    "gemini": lambda key: {"x-goog-api-key": key},
}


def _probe(name: str, upstream: Upstream, key: str, told: str) -> Check:
    headers = {**upstream.headers, **(_AUTH[upstream.protocol](key) if key else {})}
    request = urllib.request.Request(f"{upstream.base_url.rstrip('/')}/models", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PROBE_S) as response:
            status = response.status
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        advice = "check base_url, the network, and whether the server runs"
        return Check(name=name, state="broken", detail=f"{upstream.base_url}, {told}: {reason}", advice=advice)
    if status in (401, 403):
        advice = f"the key in {upstream.key_env} is refused" if upstream.key_env else "it wants a key: set key_env"
        return Check(name=name, state="broken", detail=f"{upstream.base_url} answers {status}", advice=advice)
    return Check(name=name, state="ok", detail=f"{upstream.base_url} answers, {told}")


def check_tools(settings: Settings) -> Check:
    """Load the tools of the configuration."""
    from treadle.runtime import Runtime

    if not settings.tools.enabled:
        return Check(name="tools", state="note", detail="server tools are turned off")
    try:
        names = [tool.name for tool in Runtime(settings).registry.tools()]
    except TreadleError as error:
        return Check(name="tools", state="broken", detail=error.message, advice=error.hint or "")
    return Check(name="tools", state="ok", detail=", ".join(names) or "none")


def check_port(settings: Settings) -> Check:
    """Look whether the gateway could listen."""
    server = settings.server
    with socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host.strip("[]"), server.port))
        except OSError as error:
            detail = f"{server.host}:{server.port}: {error.strerror or error}"
            return Check(
                name="port", state="note", detail=detail, advice="treadle may run already; --port takes another"
            )
    return Check(name="port", state="ok", detail=f"{server.host}:{server.port} is free")


def check_keys(settings: Settings, env: Mapping[str, str]) -> Check:
    """Look whether strangers could use the gateway, and whether keys can be known again tomorrow."""
    from treadle.server.clients.identity import asks_for_key
    from treadle.server.login.gate import asks_for_login, is_exposed
    from treadle.server.login.secret import VARIABLE, is_shared

    if not asks_for_key(settings):
        if not is_exposed(settings):
            return Check(name="keys", state="ok", detail="not needed: only this machine can reach the gateway")
        detail = "other machines can reach the gateway, and it asks no program for a key"
        return Check(name="keys", state="note", detail=detail, advice='keys.required = "auto" asks for one')
    if settings.store.persistence == "off" or not is_shared(settings, env):
        advice = f"keep a journal in a file or a database, and set {VARIABLE} for every process"
        return Check(name="keys", state="broken", detail="needed, and nothing keeps them", advice=advice)
    people = "people log in" if asks_for_login(settings) else "people can not log in (server.login)"
    return Check(name="keys", state="ok", detail=f"needed by programs; {people}; `treadle keys create` makes one")


def check_openat2() -> Check:
    """Look whether the kernel can confine the file tools by itself."""
    if _has_syscall(_OPENAT2):
        return Check(name="openat2", state="ok", detail="the kernel keeps file tools inside their folder")
    return Check(name="openat2", state="note", detail="not here: file tools walk each path without following links")


def check_sandbox() -> Check:
    """Try how far commands can be confined here; a child really attempts what each level forbids."""
    from treadle.tools.sandbox import describe, find_level, shortfalls

    found = find_level()
    state = "ok" if found.level >= SANDBOX_WANTED else "note"
    return Check(name="sandbox", state=state, detail=describe(found), advice="\n".join(shortfalls(found)))


def _has_syscall(number: int) -> bool:
    """Call it with nothing sensible: a kernel that knows it complains of the arguments."""
    return sys.platform == "linux" and _syscall(number, -1, None, None, 0) == -1 and ctypes.get_errno() not in (0, 38)


def _syscall(number: int, *arguments: int | None) -> int:
    if sys.platform != "linux":
        return -1
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))


def _requirement_name(line: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", line)
    return found[0] if found else line


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
