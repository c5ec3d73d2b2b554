"""Treadle's own API for MCP servers: their state, the tools that wait for a decision, and the decisions."""

import asyncio

import msgspec

from treadle.core.errors import Conflict, NotFound
from treadle.server.auth.route_permissions import OPERATE
from treadle.server.http_exchange import Exchange, read_body
from treadle.server.route import FLAG, TEXT, RouteGroup, fields, gives, listed
from treadle.server.server_state import Service
from treadle.tools.mcp.tool_pins import Kind


class WaitingTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that stays out: how it looked when it was agreed to (empty when it is new), and how it looks now."""

    tool: str
    kind: Kind
    reason: str
    digest: str
    before: str
    now: str


class McpServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A configured MCP server; `left_out` says of each tool that is not used why."""

    name: str
    state: str
    reason: str
    tools: list[str]
    left_out: dict[str, str]
    waiting: list[WaitingTool]


class ToolDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a decision; `digest` is that of what was shown, so that nothing else is agreed to."""

    tool: str
    digest: str
    accept: bool


async def index(service: Service, exchange: Exchange) -> None:
    """List the MCP servers and the tools of each that wait for a decision. Raises: ConfigError."""
    servers = service.runtime.mcp
    views = [] if servers is None else await asyncio.to_thread(_views, service)
    await exchange.answer_json(200, {"servers": views})


async def decide(service: Service, exchange: Exchange) -> None:
    """Accept or refuse one tool as it was shown.

    Raises: NotFound; ProtocolError, naming the field; Conflict, if the tool has changed again.
    """
    name, servers = exchange.params["server"], service.runtime.mcp
    server = next((each for each in ([] if servers is None else servers.all) if each.options.name == name), None)
    if server is None:
        raise NotFound(f"There is no MCP server {name[:128]!r}.", hint="GET /treadle/v1/mcp lists them.")
    choice = await service.read(exchange, lambda body: read_body(body, ToolDecision))
    if not await asyncio.to_thread(server.decide, choice.tool, choice.digest, is_accepted=choice.accept):
        raise Conflict(
            f"The tool {choice.tool[:128]!r} does not wait, or looks different by now.",
            hint="GET /treadle/v1/mcp shows how it looks.",
        )
    await exchange.answer_json(200, {"tool": choice.tool, "accepted": choice.accept})


def _views(service: Service) -> list[McpServerView]:
    servers, registry = service.runtime.mcp, service.runtime.registry
    return [
        McpServerView(
            name=server.options.name,
            state=server.state,
            reason=server.reason,
            tools=[tool.name for tool in registry.held(server.options.source)],
            left_out=server.left_out,
            waiting=[
                WaitingTool(
                    tool=each.tool,
                    kind=each.kind,
                    reason=each.reason,
                    digest=each.digest,
                    before=each.before,
                    now=each.now,
                )
                for each in server.review()
            ],
        )
        for server in ([] if servers is None else servers.all)
    ]


_ROWS = RouteGroup("MCP", OPERATE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/mcp",
        index,
        "List the MCP servers and the tools of each that wait for a person",
        gives(fields(servers=listed(McpServerView))),
    ),
    _ROWS.post(
        "/treadle/v1/mcp/{server}",
        decide,
        "Accept or refuse a tool that is new or changed, as it was shown",
        gives(fields(tool=TEXT, accepted=FLAG)),
        body=ToolDecision,
    ),
)
