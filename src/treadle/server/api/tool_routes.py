"""Treadle's own API: lists the server's tools with their policies, and which setting decided each. Runs no tool."""

import asyncio

import msgspec

from treadle.core.errors import NotFound
from treadle.core.tool_definitions import ToolPolicy, ToolSpec
from treadle.server.auth.route_permissions import TREADLE
from treadle.server.http_exchange import Exchange
from treadle.server.route import ANY, FLAG, TEXT, RouteGroup, fields, gives, listed
from treadle.server.server_state import Service
from treadle.tools import Tool
from treadle.tools.policy_rules import fits


class ToolView(msgspec.Struct, frozen=True, kw_only=True):
    """One tool: `why` says for each field of its policy who set it, `sandbox` where it runs."""

    spec: ToolSpec
    policy: ToolPolicy
    source: str
    needs_approval: bool
    sandbox: str
    why: dict[str, str]


class OffView(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is there and was turned off."""

    name: str
    source: str
    why: str


async def index(service: Service, exchange: Exchange) -> None:
    """List the server tools and how each may run; `off` lists those that a rule disables."""
    registry = service.runtime.registry
    everything = [tool for tool in registry.everything() if is_shown(exchange, tool)]
    on = [tool for tool in everything if registry.get(tool.name) is not None]
    views = await asyncio.to_thread(lambda: [_view(tool) for tool in on])
    off = [
        OffView(name=tool.name, source=tool.declared.source, why=tool.why.get("enabled", "tools.enabled"))
        for tool in everything
        if tool not in on
    ]
    await exchange.answer_json(200, {"tools": views, "off": off})


async def get(service: Service, exchange: Exchange) -> None:
    """Return one tool. Raises: NotFound."""
    registry, name = service.runtime.registry, exchange.params["name"]
    tool = registry.get(name)
    if tool is None or not is_shown(exchange, tool):
        near = [each for each in registry.nearest(name) if is_shown(exchange, registry.get(each))]
        hint = f"Did you mean {', '.join(near)}?" if near else "GET /treadle/v1/tools lists them."
        raise NotFound(f"There is no tool {name[:128]!r}.", hint=hint)
    await exchange.answer_json(200, await asyncio.to_thread(_view, tool))


def is_shown(exchange: Exchange, tool: Tool | None) -> bool:
    """Return whether the client sees a tool: only if its runs may be offered it."""
    allowed = exchange.client.tools
    return tool is not None and (allowed is None or fits(tool.declared, allowed))


def _view(tool: Tool) -> ToolView:
    """Describe a tool; finding its sandbox may need a probe, which blocks."""
    return ToolView(
        spec=tool.spec,
        policy=tool.policy,
        source=tool.declared.source,
        needs_approval=tool.policy.needs_approval,
        sandbox=tool.sandbox,
        why=tool.why,
    )


# As `ToolView`, whose spec holds a schema as it was written.
_TOOL = fields(
    spec=fields(name=TEXT, description=TEXT, parameters={}),
    policy=ToolPolicy,
    source=TEXT,
    needs_approval=FLAG,
    sandbox=TEXT,
    why=ANY,
)
_ROWS = RouteGroup("Tools", TREADLE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/tools",
        index,
        "List the server's tools and how each may run",
        gives(fields(tools=listed(_TOOL), off=listed(OffView))),
    ),
    _ROWS.get("/treadle/v1/tools/{name*}", get, "Show a tool", gives(_TOOL)),
)
