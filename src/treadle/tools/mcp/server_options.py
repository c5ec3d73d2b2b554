"""The settings of one MCP server: how to reach it, and how far it is trusted."""

import msgspec

from treadle.core.tool_definitions import Approval, Effect


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One server: `command` starts it as a process over stdio, `url` reaches it over streamable HTTP.

    `env` and `headers` contain resolved secrets and are never shown or logged.
    """

    name: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    tools: tuple[str, ...] = ("*",)
    trusted: bool = False
    effect: Effect = "write"
    approval: Approval = "by_effect"
    timeout_s: float = 60.0
    connect_s: float = 15.0
    tools_max: int = 128

    @property
    def source(self) -> str:
        """Return the source of its tools."""
        return f"mcp:{self.name}"

    @property
    def place(self) -> str:
        """Return its address or command, without secrets; its pins are stored under it."""
        return self.url or "\0".join(self.command)
