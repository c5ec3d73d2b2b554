"""Whether the gateway could serve: its tools, its port, its keys, and that it does not ask itself."""

import asyncio
import http.client
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli.doctor.check_result import Check, broken
from treadle.cli.doctor.store_checks import write_problem
from treadle.config import Settings
from treadle.config.cross_checks import is_loopback
from treadle.config.settings import SQLITE
from treadle.core.errors import ConfigError, TreadleError, Unauthorised

if TYPE_CHECKING:
    from treadle.journal.keys_interface import KeyRow

PROBE_S = 0.5


def check_tools(settings: Settings) -> Check:
    """Load the tools of the configuration."""
    from treadle.runtime import Runtime

    if not settings.tools.enabled:
        advice = "tools.enabled or ENABLE_TOOLS is false: treadle config show names where"
        return Check(name="tools", state="note", detail="server tools are turned off", advice=advice)
    try:
        names = [tool.name for tool in Runtime(settings).registry.tools()]
    except TreadleError as error:
        return broken("tools", error)
    return Check(name="tools", state="ok", detail=", ".join(names) or "none")


def check_mcp(settings: Settings, env: Mapping[str, str]) -> list[Check]:
    """Name the tools of MCP servers that wait for a person, as they were last seen; say nothing without a server."""
    from treadle.config.mcp_settings import waiting_tools

    if not settings.mcp:
        return []
    try:
        waiting = [(each.name, row) for each, row in waiting_tools(settings, env) if row.kind != "refused"]
    except TreadleError as error:
        return [broken("mcp", error)]
    if not waiting:
        return [Check(name="mcp", state="ok", detail=f"{', '.join(each.name for each in settings.mcp)}: no tool waits")]
    detail = "\n".join(f"{name}: {row.tool} is left out: {row.reason}" for name, row in waiting)
    return [Check(name="mcp", state="note", detail=detail, advice="treadle mcp review shows them and asks")]


def check_port(settings: Settings) -> Check:
    """Look whether the gateway could listen, and who does where it could not."""
    server = settings.server
    place = f"{server.host}:{server.port}"
    with socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host.strip("[]"), server.port))
        except OSError as error:
            if _is_treadle(server.host, server.port):
                advice = "stop it before you start another, or --port takes another"
                return Check(name="port", state="note", detail=f"{place}: Treadle runs there already", advice=advice)
            advice = "another program listens there; --port takes another, --port 0 any free one"
            return Check(name="port", state="note", detail=f"{place}: {error.strerror or error}", advice=advice)
    return Check(name="port", state="ok", detail=f"{place} is free")


def _is_treadle(host: str, port: int) -> bool:
    """Ask whoever listens whether it is one of us."""
    connection = http.client.HTTPConnection(host.strip("[]"), port, timeout=PROBE_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        is_ours = (answer.getheader("x-request-id") or "").startswith("req_")
        return is_ours and answer.read(64) == b'{"status":"ok"}'
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def check_addresses(settings: Settings) -> Check:
    """Look whether an upstream or an MCP server is this very gateway."""
    from treadle.cli.commands.serve_command import check_addresses

    try:
        check_addresses(settings)
    except ConfigError as error:
        return broken("routes", error, "name the address of the other server")
    return Check(name="routes", state="ok", detail="no upstream is this gateway itself")


def check_hosts(settings: Settings) -> Check:
    """Look whether a gateway that others can reach would answer them: it knows only the names it was told."""
    server = settings.server
    if is_loopback(server.host):
        return Check(name="hosts", state="ok", detail=f"answers to {server.host} and localhost")
    names = [*server.allowed_hosts, *([] if server.host.strip("[]") in ("0.0.0.0", "::") else [server.host])]
    if names:
        return Check(name="hosts", state="ok", detail=f"answers to {', '.join(names)} and localhost")
    advice = "server.allowed_hosts names what clients reach it by, such as gateway.example.org or an address"
    detail = "others can reach the gateway, and it answers to no name but localhost"
    return Check(name="hosts", state="note", detail=detail, advice=advice)


def check_keys(settings: Settings, env: Mapping[str, str]) -> Check:
    """Look whether strangers could use the gateway, and whether keys can be known again tomorrow."""
    from treadle.server.auth.authentication import asks_for_key
    from treadle.server.auth.installation_secret import CHARS_MIN, VARIABLE, is_shared
    from treadle.server.auth.page_access import asks_for_login, is_exposed

    if not asks_for_key(settings):
        if not is_exposed(settings):
            return Check(name="keys", state="ok", detail="not needed: only this machine can reach the gateway")
        detail = "other machines can reach the gateway, and it asks no program for a key"
        return Check(name="keys", state="note", detail=detail, advice='keys.required = "auto" asks for one')
    if settings.store.persistence == "off" or not is_shared(settings, env):
        advice = f"keep a journal in a file or a database, and set {VARIABLE} for every process"
        return Check(name="keys", state="broken", detail="needed, and nothing keeps them", advice=advice)
    if 0 < len(env.get(VARIABLE, "")) < CHARS_MIN:
        detail = f"{VARIABLE} has fewer than {CHARS_MIN} characters and could be guessed"
        advice = "python -c 'import secrets; print(secrets.token_hex(32))' makes one"
        return Check(name="keys", state="broken", detail=detail, advice=advice)
    people = "people log in" if asks_for_login(settings) else "people can not log in (server.login)"
    if two := _two_secrets(settings, env):
        advice = f"unset {VARIABLE}, or move {two} away; keys that were made with the other one are refused"
        detail = f"needed; there are two secrets, and {VARIABLE} goes before {two}"
        return Check(name="keys", state="note", detail=detail, advice=advice)
    return Check(name="keys", state="ok", detail=f"needed by programs; {people}; `treadle keys create` makes one")


def _two_secrets(settings: Settings, env: Mapping[str, str]) -> str:
    """Return the file of another secret than the one in the environment; nothing where there is one at most."""
    from treadle.server.auth.installation_secret import FILE, VARIABLE

    given = env.get(VARIABLE, "")
    beside = Path(settings.store.url.removeprefix(SQLITE)).expanduser().parent / FILE
    if not given or not settings.store.url.startswith(SQLITE) or not beside.is_file():
        return ""
    try:
        return "" if beside.read_bytes() == given.encode() else str(beside)
    except OSError:
        return str(beside)


def check_client_key(settings: Settings, text: str, env: Mapping[str, str]) -> Check:
    """Try a client's key against the journal, as the gateway would, and say more than it tells a stranger."""
    from treadle.access.key_token import is_proved, read_token
    from treadle.access.keyring import Keyring
    from treadle.cli.open_journal import clock_of, opened
    from treadle.runtime import RandomIds
    from treadle.server.auth.installation_secret import VARIABLE, secret_for, stored_secret

    token = read_token(text)
    if token is None:
        detail = "it does not have the form tr_…_… of a key of Treadle's"
        return Check(name="key", state="broken", detail=detail, advice="`treadle keys create NAME` makes one")

    async def look() -> "tuple[KeyRow | None, str]":
        async with opened(settings) as store:
            row = await store.keys.find(token.lookup)
            try:
                await Keyring(store.keys, pepper, clock=await clock_of(store), ids=RandomIds()).check(text)
            except Unauthorised as error:
                return row, error.message
            return row, ""

    try:
        pepper = secret_for("keys", stored_secret(settings, env))
        row, refusal = asyncio.run(look())
    except TreadleError as error:
        return broken("key", error)
    if row is None:
        advice = "`treadle keys list` shows which there are; is this the journal of the gateway?"
        return Check(name="key", state="broken", detail="this journal has no such key", advice=advice)
    if refusal and not is_proved(token, row.mac, pepper):
        detail = f"the key {row.name!r} was made under another secret, or was copied wrongly"
        advice = f"set {VARIABLE} (or bring back secret.key) as it was then, or make a new key"
        return Check(name="key", state="broken", detail=detail, advice=advice)
    if refusal:
        return Check(name="key", state="broken", detail=refusal, advice=f"treadle keys create {row.name}-2")
    return Check(name="key", state="ok", detail=f"{row.name!r} may use {_scopes(row)}")


def _scopes(row: "KeyRow") -> str:
    parts = [f"{name} {', '.join(getattr(row.grant, name))}" for name in ("apis", "models", "tools")]
    return "; ".join([*parts, f"role {row.grant.role}"])


def check_data(env: Mapping[str, str]) -> Check:
    """Look whether a person's own folder of data can be written: what was allowed, and compiled guests, are there."""
    from treadle.config.loader import data_directory

    folder = data_directory(env)
    if problem := write_problem(folder / "new"):
        advice = "set XDG_DATA_HOME to a folder that can be written"
        return Check(name="data", state="note", detail=f"{folder} can not be written: {problem}", advice=advice)
    return Check(name="data", state="ok", detail=f"{folder} can be written")
