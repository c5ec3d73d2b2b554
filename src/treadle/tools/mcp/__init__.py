"""Tools of MCP servers, over stdio and streamable HTTP. Importing this package does not import the MCP SDK."""

from treadle.tools.mcp.server_options import ServerOptions
from treadle.tools.mcp.tool_names import join_name
from treadle.tools.mcp.tool_pins import Pins

__all__ = ["Pins", "ServerOptions", "join_name"]
