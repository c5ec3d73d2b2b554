"""The names of MCP tools in Treadle: `mcp__server__tool`.

A server's name contains no `__` and does not end in `_`, so the first `__` after the prefix always ends it: two servers
can never have a tool of the same name.
"""

PREFIX = "mcp__"
SEPARATOR = "__"
SERVER_PATTERN = r"^[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*$"


def join_name(server: str, tool: str) -> str:
    """Return the name by which a model calls a server's tool."""
    return f"{PREFIX}{server}{SEPARATOR}{tool}"
