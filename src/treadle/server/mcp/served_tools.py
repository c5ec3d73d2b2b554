"""What an MCP client can ask of Treadle: the list of its tools, and to run one of them.

Both eras of the protocol are the SDK's; here the nouns are translated. Whether a call may run is decided where every
other call's is.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, cast

import mcp_types as types
from mcp import MCPError
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.models import InitializationOptions

from treadle.access.client_identity import LOCAL, Client
from treadle.core.errors import RequestError, ToolFailed, TreadleError
from treadle.core.items import AnyPart, FilePart, ImagePart, ResultItem, TextPart, text_of
from treadle.core.json import BadJson, read_json
from treadle.core.tool_definitions import ServerTool, ToolPolicy
from treadle.runs.tool_offers import narrow
from treadle.runtime import Runtime
from treadle.server.http_exchange import CLIENT_IN_SCOPE
from treadle.server.mcp.tool_change_notices import ToolChangeNotices

PROGRESS_WAITING_MAX = 64
_AUDIO = "audio/"
_IMAGE = "image/"

Context = ServerRequestContext[Any, Any]
RunCall = Callable[[str, dict[str, Any], Callable[[str], None], Client], Awaitable[ResultItem]]


class ToolServer(Server[Any]):
    """An MCP server that announces changes of its tools; call `changes.close()` at the end."""

    changes: ToolChangeNotices

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Announce change notices to clients of the older protocol versions."""
        promised = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(promised, experimental_capabilities, extensions)


def make_server(runtime: Runtime, run_call: RunCall | None = None) -> ToolServer:
    """Return an MCP server of this runtime's tools; `run_call` runs a call, by default the runtime itself.

    A client sees and runs the tools that its key allows.
    """
    changes = ToolChangeNotices(runtime.registry)

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        changes.remember_client(context)
        allowed = client_of(context).tools
        return types.ListToolsResult(tools=[_listed(tool) for tool in narrow(runtime.registry.tools(), allowed)])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        client = client_of(context)
        names = {tool.name for tool in narrow(runtime.registry.tools(), client.tools)}
        if params.name not in names:
            near = [name for name in runtime.registry.nearest(params.name) if name in names]
            hint = f" Did you mean {', '.join(near)}?" if near else ""
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:128]!r}.{hint}")
        async with _Progress(context) as progress:
            return await _run(run_call or runtime.call, params, progress, client)

    server = ToolServer(
        "treadle",
        version=version("treadle"),
        title="Treadle",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=changes.listen,
    )
    server.changes = changes
    return server


def client_of(context: Context) -> Client:
    """Return the client: over HTTP the authenticated one, over pipes the local user."""
    scope: dict[str, Any] = getattr(context.request, "scope", None) or {}
    return scope.get(CLIENT_IN_SCOPE, LOCAL)


async def _run(
    run_call: RunCall, params: types.CallToolRequestParams, progress: "_Progress", client: Client
) -> types.CallToolResult:
    try:
        return write_result(await run_call(params.name, params.arguments or {}, progress.report, client))
    except ToolFailed as error:
        return types.CallToolResult(content=[types.TextContent(text=error.info.message)], is_error=True)
    except RequestError as error:
        raise MCPError(types.INVALID_PARAMS, error.info.message) from error
    except TreadleError as error:
        raise MCPError(types.INTERNAL_ERROR, error.info.message) from error


class _Progress:
    """Sends a tool's progress lines, in order, to a client that asked for them."""

    def __init__(self, context: Context) -> None:
        self._session = context.session
        self._waiting: asyncio.Queue[str] = asyncio.Queue(PROGRESS_WAITING_MAX)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "_Progress":
        self._task = asyncio.create_task(self._send_reports())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None, "it was entered"
        self._task.cancel()
        await asyncio.wait({self._task})

    def report(self, text: str) -> None:
        """Queue one line; if the client reads too slowly, lines are dropped."""
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(text)

    async def _send_reports(self) -> None:
        count = 0
        while True:
            text = await self._waiting.get()
            count += 1
            await self._session.report_progress(float(count), None, text)


def _listed(tool: ServerTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.spec.description or None,
        input_schema=cast("dict[str, Any]", read_json(bytes(tool.spec.parameters))),
        annotations=_hints(tool.policy),
    )


def _hints(policy: ToolPolicy) -> types.ToolAnnotations:
    return types.ToolAnnotations(
        read_only_hint=policy.effect == "read",
        destructive_hint=policy.effect == "destructive",
        idempotent_hint=policy.effect in ("read", "idempotent"),
        open_world_hint=policy.egress,
    )


def write_result(result: ResultItem) -> types.CallToolResult:
    """Write a result; one text that is a JSON object is given as structured content too."""
    content = [_block(part) for part in result.output] or [types.TextContent(text="")]
    return types.CallToolResult(content=content, structured_content=_structured(result), is_error=result.is_error)


def _structured(result: ResultItem) -> dict[str, Any] | None:
    text = text_of(result.output)
    if result.is_error or len(result.output) != 1 or not text.startswith("{"):
        return None
    try:
        value = read_json(text)
    except BadJson:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _block(part: AnyPart) -> types.ContentBlock:
    match part:
        case ImagePart(url=str(url)) | FilePart(url=str(url)):
            return _data(url, part.filename if isinstance(part, FilePart) else None)
        case TextPart():
            return types.TextContent(text=part.text)
        case _:
            return types.TextContent(text=f"[{type(part).__name__} that MCP cannot carry]")


def _data(url: str, filename: str | None) -> types.ContentBlock:
    """Write the content of a data URL, or the URL itself."""
    head, comma, data = url.partition(",")
    if not url.startswith("data:") or not comma or not head.endswith(";base64"):
        return types.TextContent(text=url)
    mime = head.removeprefix("data:").removesuffix(";base64") or "application/octet-stream"
    if mime.startswith(_IMAGE):
        return types.ImageContent(data=data, mime_type=mime)
    if mime.startswith(_AUDIO):
        return types.AudioContent(data=data, mime_type=mime)
    uri = f"treadle://result/{filename or 'file'}"
    return types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=mime))
