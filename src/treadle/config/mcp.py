"""From `[[mcp]]` tables to MCP servers: their secrets taken from the environment, their pins kept beside the store."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from treadle.canon.errors import ConfigError
from treadle.config.reader import data_directory
from treadle.config.settings import Mcp, Settings, sqlite_path
from treadle.store.address import is_postgres
from treadle.tools.mcp import Pins, ServerOptions
from treadle.tools.registry import Registry

if TYPE_CHECKING:
    from treadle.tools.mcp.servers import Servers

PINS_NAME = "mcp-tools.json"


def make_servers(
    settings: Settings, env: Mapping[str, str], registry: Registry, told: Callable[[], None]
) -> "Servers | None":
    """Return the MCP servers of the settings, not yet connected; None where there are none.

    Raises: ConfigError, without the SDK.
    """
    if not settings.mcp or not settings.tools.enabled:
        return None
    try:
        from treadle.tools.mcp.servers import Servers
    except ImportError as error:
        hint = "pip install 'treadle[mcp]'"
        raise ConfigError(f"[[mcp]] needs the MCP SDK, which is not installed ({error.name})", hint=hint) from error
    options = [options_of(server, env) for server in settings.mcp]
    return Servers(options, registry, environ=env, pins=pins_of(settings, env), told=told)


def pins_of(settings: Settings, env: Mapping[str, str]) -> Pins:
    """Return what remembers how the tools of MCP servers looked, beside the store; in memory when nothing is kept."""
    if settings.store.persistence == "off":
        return Pins()
    url = settings.store.url
    folder = sqlite_path(url).parent if url and not is_postgres(url) else data_directory(env)
    return Pins(folder / PINS_NAME)


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
