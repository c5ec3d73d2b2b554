"""The names of MCP tools here: `mcp__server__tool`, and back.

A server's name holds no `__` and does not end in `_`, so the first `__` behind the prefix always ends it: the mapping
is reversible, and two servers can never have a tool of the same name.
"""

import re

PREFIX = "mcp__"
SEPARATOR = "__"
SERVER_PATTERN = r"^[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*$"
SERVER_CHARS_MAX = 32
_SERVER = re.compile(SERVER_PATTERN)


def join_name(server: str, tool: str) -> str:
    """Return the name that a model calls a server's tool by."""
    return f"{PREFIX}{server}{SEPARATOR}{tool}"


def split_name(name: str) -> tuple[str, str] | None:
    """Return the server and the tool that a name means; None for one that is no MCP tool's."""
    server, found, tool = name.removeprefix(PREFIX).partition(SEPARATOR)
    if not name.startswith(PREFIX) or not found or not tool or not _SERVER.match(server):
        return None
    return server, tool
