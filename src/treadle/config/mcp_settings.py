"""Builds MCP servers from `[[mcp]]` tables: secrets come from the environment, pins are stored beside the journal."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from treadle.config.loader import data_directory
from treadle.config.settings import Mcp, Settings, sqlite_path
from treadle.core.errors import ConfigError
from treadle.journal.store_url import is_postgres
from treadle.tools.mcp import Pins, ServerOptions
from treadle.tools.mcp.tool_pins import ToolAwaitingReview
from treadle.tools.tool_registry import ToolRegistry

if TYPE_CHECKING:
    from treadle.tools.mcp.server_set import Servers

PINS_NAME = "mcp-tools.json"
SECRET_NAME = "secret.key"
JOURNAL_ENDS = ("", "-wal", "-shm", "-journal")


def make_servers(
    settings: Settings,
    env: Mapping[str, str],
    registry: ToolRegistry,
    on_change: Callable[[], None],
    closed: Callable[[], frozenset[int]],
) -> "Servers | None":
    """Return the MCP servers of the settings, not yet connected; None where there are none.

    Raises: ConfigError, without the SDK.
    """
    if not settings.mcp or not settings.tools.enabled:
        return None
    try:
        from treadle.tools.mcp.server_isolation import Hiding
        from treadle.tools.mcp.server_set import Servers
    except ImportError as error:
        hint = "pip install 'treadle[mcp]'"
        raise ConfigError(f"[[mcp]] needs the MCP SDK, which is not installed ({error.name})", hint=hint) from error
    options = [options_of(server, env) for server in settings.mcp]
    hiding = Hiding(lambda: own_paths(settings, env), closed)
    return Servers(options, registry, environ=env, pins=pins_of(settings, env), told=on_change, hiding=hiding)


def own_paths(settings: Settings, env: Mapping[str, str]) -> list[str]:
    """Return the folder and the files that are Treadle's own: the journal, what is kept beside it, its socket."""
    found = [data_directory(env)]
    url = settings.store.url
    if is_postgres(url):
        return [str(path) for path in (*found, *_sockets(url))]
    if url and settings.store.persistence == "on":
        journal = sqlite_path(url)
        if not journal.resolve().is_relative_to(found[0].resolve()):
            names = [f"{journal.name}{end}" for end in JOURNAL_ENDS]
            found += [journal.parent / name for name in (*names, SECRET_NAME, PINS_NAME)]
    return [str(path) for path in found]


def _sockets(url: str) -> list[Path]:
    """Return the Unix sockets by which a PostgreSQL is reached, if that is how."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    hosts = [options.get("host", ""), unquote(parts.hostname or "")]
    return [path for host in hosts if host.startswith("/") for path in Path(host).glob(".s.PGSQL.*")]


def pins_of(settings: Settings, env: Mapping[str, str]) -> Pins:
    """Return what remembers how the tools of MCP servers looked, beside the store; in memory when nothing is kept."""
    if settings.store.persistence == "off":
        return Pins()
    url = settings.store.url
    folder = sqlite_path(url).parent if url and not is_postgres(url) else data_directory(env)
    return Pins(folder / PINS_NAME)


def waiting_tools(settings: Settings, env: Mapping[str, str]) -> list[tuple[Mcp, ToolAwaitingReview]]:
    """Return the tools of the configured servers that stay out until a person decides, or that one refused.

    Raises: ConfigError.
    """
    pins = pins_of(settings, env)
    return [(server, row) for server in settings.mcp for row in pins.waiting(options_of(server, env).place)]


def options_of(server: Mcp, env: Mapping[str, str]) -> ServerOptions:
    """Return how a configured server is reached, its secrets taken from the environment."""
    headers = server.headers | {name: env.get(variable, "") for name, variable in server.headers_env.items()}
    if server.key_env and env.get(server.key_env):
        headers["authorization"] = f"Bearer {env[server.key_env]}"
    return ServerOptions(
        name=server.name,
        command=server.command,
        cwd=server.cwd or None,
        env=server.env | {name: env[name] for name in server.env_from if name in env},
        url=server.url,
        headers={name: value for name, value in headers.items() if value},
        tools=server.tools,
        trusted=server.trusted,
        effect=server.effect,
        approval=server.approval,
        timeout_s=server.timeout_s,
        connect_s=server.connect_s,
        tools_max=server.tools_max,
    )


def secrets_of(settings: Settings, env: Mapping[str, str]) -> list[str]:
    """Return the secrets of all servers, which no log may show."""
    named = (name for each in settings.mcp for name in (*each.env_from, *each.headers_env.values(), each.key_env or ""))
    return [env[name] for name in named if env.get(name)]
