"""The route `/mcp`: disabled unless configured, and needs the MCP SDK."""

from treadle.core.errors import NotFound
from treadle.server.auth.route_permissions import MCP
from treadle.server.http_exchange import Exchange, HttpError
from treadle.server.route import ANY, EVENTS, JSON, Content, RouteGroup
from treadle.server.server_state import Service


async def handle(service: Service, exchange: Exchange) -> None:
    """Serve the tools to MCP clients. Raises: NotFound while it is off; HttpError without the SDK."""
    if not service.runtime.settings.server.mcp:
        raise NotFound("MCP is not served here.", hint="Set server.mcp = true in the configuration.")
    if service.mcp is None:
        try:
            from treadle.server.mcp.mcp_endpoint import McpEndpoint
        except ImportError as error:
            message = f"MCP needs the MCP SDK, which is not installed ({error.name})."
            raise HttpError(501, "mcp_not_installed", message, hint="pip install 'treadle[mcp]'") from error
        service.mcp = McpEndpoint(service)
    await service.mcp.handle(exchange)


ROUTES = (
    RouteGroup("MCP", MCP).row(
        "GET POST DELETE",
        "/mcp",
        handle,
        "Speak MCP (JSON-RPC over streamable HTTP)",
        {200: (Content(JSON, ANY), Content(EVENTS)), 202: (), 204: ()},
        body=ANY,
    ),
)
