"""One MCP server: stays connected while Treadle runs, lists its tools again on change, and calls them.

One task owns the connection, since the SDK requires that the task that opens it also closes it. After a connection is
lost it is opened again with growing pauses, and calls fail with an error until then. An interrupted call is never
repeated here: only the tool's own policy may retry it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from treadle.core.errors import ConfigError, ToolFailed
from treadle.core.json import cut_text
from treadle.tools.function_tools import Tool
from treadle.tools.json_schema import Validator
from treadle.tools.mcp.http_transport import Web
from treadle.tools.mcp.result_content import read_result
from treadle.tools.mcp.server_isolation import Hiding
from treadle.tools.mcp.server_options import ServerOptions
from treadle.tools.mcp.stdio_transport import StdioProcess
from treadle.tools.mcp.tool_discovery import FoundTools, choose, read_listing
from treadle.tools.mcp.tool_pins import Pins, ToolAwaitingReview
from treadle.tools.mcp.untyped_results import with_result_types
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.tool_context import ToolContext

log = logging.getLogger("treadle.mcp")
# The SDK logs every protocol error of a server with a traceback; Treadle logs what matters itself.
logging.getLogger("mcp").setLevel(logging.CRITICAL)

RECONNECT_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
WAIT_FOR_RECONNECT_S = 2.0
RELIST_PAUSE_S = 1.0
"""The shortest interval between listings, for a server that constantly reports changes."""
ACCEPTED_POLL_S = 2.0
PROGRESS_PAUSE_S = 0.1
WORDS_BYTES_MAX = 1_000
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
CONNECTION_FAILURES = (
    OSError,
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    MCPError,
    httpx2.HTTPError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    ExceptionGroup,
    ConfigError,
)
"""Exceptions that end a connection, whether caused by the server, the SDK or the configuration."""

_CLOSED = "Connection closed"
"""The SDK's own message for CONNECTION_CLOSED; compared too because servers use the same code for other errors."""

Publish = Callable[[str, list[Tool]], None]


class Lost(OSError):
    """The connection to the server was lost."""


class Server:
    """Keeps one server connected. `publish` receives its source and its tools whenever they change."""

    def __init__(
        self,
        options: ServerOptions,
        *,
        environ: Mapping[str, str],
        pins: Pins,
        publish: Publish,
        hiding: Hiding | None = None,
    ) -> None:
        self.options = options
        self.state = "connecting"
        self.reason = ""
        self.left_out: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self._environ = environ
        self._hiding = hiding
        self._pins = pins
        self._publish = publish
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._tried = asyncio.Event()
        self._relist = asyncio.Event()
        self._broken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def review(self) -> list[ToolAwaitingReview]:
        """Return the tools that await review or were refused. Reads a file.

        Raises: ConfigError, when it cannot be read.
        """
        return self._pins.waiting(self.options.place)

    def decide(self, tool: str, digest: str, *, is_accepted: bool) -> bool:
        """Accept or refuse a tool by its digest; return whether the digest was still current. Writes a file.

        Raises: ConfigError.
        """
        decide = self._pins.accept if is_accepted else self._pins.refuse
        return bool(decide(self.options.place, [tool], digest))

    def start(self) -> None:
        """Start the task that owns the connection."""
        self._task = asyncio.create_task(self._stay_connected(), name=f"treadle-mcp-{self.options.name}")

    async def tried(self) -> None:
        """Wait until the tools are listed or the first attempt has failed."""
        await self._tried.wait()

    async def close(self) -> None:
        """Close the connection and end the server's process."""
        self._is_closing = True
        if self._task is not None:
            await _cancel(self._task)

    async def call(
        self, name: str, arguments: dict[str, Any], context: ToolContext, output: Validator | None
    ) -> ToolAnswer:
        """Call a tool by the server's name for it.

        Raises: ToolFailed, with a message for the model.
        """
        client = await self._wait_connected()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        try:
            # Not `client.call_tool`: it validates results against the server's own schema in this process, and a
            # backtracking pattern in it could block the event loop.
            result = await client.session.send_request(
                request, _ANSWER, progress_callback=_ProgressReporter(context).report
            )
        except MCPError as error:
            raise self._failed(error) from error
        except (httpx2.HTTPError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self._lose()
            raise self._interrupted() from error
        except (ValueError, RuntimeError, TypeError) as error:
            raise ToolFailed(
                f"The MCP server {self.options.name} answered with something that is no result."
            ) from error
        if isinstance(result, types.InputRequiredResult):
            raise ToolFailed(self._input_required_message(result))
        return await read_result(result, output)

    def _input_required_message(self, result: types.InputRequiredResult) -> str:
        """Return the message for a tool that requires input beyond its arguments."""
        asked = sorted({request.method for request in (result.input_requests or {}).values()})
        what = f" ({', '.join(asked)})" if asked else ""
        return cut_text(
            f"The MCP server {self.options.name} did not run the tool: it asks for further input{what}, which Treadle "
            "cannot give. Call the tool with all that it needs in its arguments, or do without it.",
            WORDS_BYTES_MAX,
        )

    def _failed(self, error: MCPError) -> ToolFailed:
        if error.code == types.CONNECTION_CLOSED and error.message == _CLOSED:
            self._lose()
            return self._interrupted()
        if error.code == types.INVALID_REQUEST and self.options.url:
            # The SDK reports an expired session this way; a new connection starts a new one.
            self._lose()
        return ToolFailed(cut_text(error.message, WORDS_BYTES_MAX) or f"MCP error {error.code}")

    def _interrupted(self) -> ToolFailed:
        message = f"The MCP server {self.options.name} went away during the call; it may or may not have been done."
        return ToolFailed(message, code="mcp_interrupted")

    async def _wait_connected(self) -> Client:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_FOR_RECONNECT_S):
                await self._connected.wait()
        if self._client is None or not self._connected.is_set():
            why = f": {self.reason}" if self.reason else ""
            message = f"The MCP server {self.options.name} is not connected{why}. It is tried again."
            raise ToolFailed(message, code="mcp_unavailable")
        return self._client

    async def _stay_connected(self) -> None:
        """Connect, serve, and reconnect with growing pauses until closed."""
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                async with self._connection() as client:
                    await self._serve(client)
            except CONNECTION_FAILURES as error:
                self._record_failure(error)
            if self._is_closing:
                # A connection that is shutting down may swallow the cancellation as one of its own.
                return
            lasted_s = asyncio.get_running_loop().time() - began
            failures = 0 if lasted_s > RECONNECT_S[-1] else failures
            await asyncio.sleep(RECONNECT_S[min(failures, len(RECONNECT_S) - 1)])
            failures += 1

    def _record_failure(self, error: BaseException) -> None:
        self.state, self.reason = "down", _innermost_message(error)
        self._tried.set()
        log.warning("MCP server %s is down: %s", self.options.name, self.reason)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Client, None]:
        """Open the connection within its timeout; failures are raised as Lost, with the reason."""
        self._broken.clear()
        self._relist.clear()
        peer = StdioProcess(self.options, self._environ, self._hiding) if self.options.command else Web(self.options)
        transport: Transport = with_result_types(peer.connect())
        client = Client(transport, message_handler=self._on_message, client_info=_ME, cache=None)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.options.connect_s):
                    await stack.enter_async_context(client)
            except TimeoutError:
                raise Lost(_with_last_output(f"no answer within {self.options.connect_s:g} s", peer)) from None
            except CONNECTION_FAILURES as error:
                raise Lost(_with_last_output(_innermost_message(error), peer)) from error
            if isinstance(peer, StdioProcess):
                watcher = asyncio.create_task(self._watch(peer))
                stack.push_async_callback(_cancel, watcher)
            try:
                yield client
            finally:
                self._client = None
                self._connected.clear()
        raise Lost(_with_last_output(peer.reason or "the connection was lost", peer))

    def _lose(self) -> None:
        self._broken.set()
        self._connected.clear()

    async def _watch(self, process: StdioProcess) -> None:
        await process.ended.wait()
        self._lose()

    async def _serve(self, client: Client) -> None:
        """List the tools now and whenever they change, until the connection breaks."""
        listening = asyncio.create_task(self._listen(client))
        try:
            while not self._broken.is_set():
                self._relist.clear()
                found = await self._list(client)
                self._client = client
                self.state, self.reason = "up", ""
                self._publish_accepted(found)
                self._connected.set()
                self._tried.set()
                await self._wait_for_change(found)
        finally:
            await _cancel(listening)

    async def _list(self, client: Client) -> FoundTools:
        try:
            async with asyncio.timeout(self.options.connect_s):
                listed = await read_listing(lambda cursor: client.list_tools(cursor=cursor))
        except TimeoutError:
            raise Lost(f"it did not list its tools within {self.options.connect_s:g} s") from None
        # Checking untrusted schemas may be slow, so it runs in a thread.
        return await asyncio.to_thread(choose, listed, self.options, self.call)

    def _publish_accepted(self, found: FoundTools) -> None:
        """Publish the accepted tools; new or changed ones await review."""
        self.waiting = self._check(found)
        self.left_out = found.left_out | self.waiting
        for name, why in self.left_out.items():
            log.warning("MCP server %s: the tool %r is left out: %s", self.options.name, name, why)
        self._publish(self.options.source, [tool for name, tool in found.tools.items() if name not in self.waiting])

    async def _wait_for_change(self, found: FoundTools) -> None:
        """Wait for a change of the list or a broken connection; meanwhile poll for accepted reviews."""
        await _wait_any(self._broken, timeout_s=RELIST_PAUSE_S)
        while not (self._broken.is_set() or self._relist.is_set()):
            await _wait_any(self._broken, self._relist, timeout_s=ACCEPTED_POLL_S if self.waiting else None)
            if self.waiting and self._check(found) != self.waiting:
                self._publish_accepted(found)

    def _check(self, found: FoundTools) -> dict[str, str]:
        return self._pins.check(self.options.place, found.looks, found.others)

    async def _on_message(self, message: object) -> None:
        """Handle a change notification of protocol versions with a handshake."""
        if isinstance(message, types.ToolListChangedNotification):
            self._relist.set()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tools, on servers of a stateless protocol version that offer it."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError, httpx2.HTTPError, OSError):
            async with client.listen(tools_list_changed=True) as changes:
                self._relist.set()  # a change before the subscription sends no notification
                async for _ in changes:
                    self._relist.set()


class _ProgressReporter:
    """Passes a server's progress notifications to the context, at a limited rate."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._reported_at = float("-inf")

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._reported_at < PROGRESS_PAUSE_S and progress != total:
            return
        self._reported_at = now
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        self._context.progress(cut_text(f"{message} ({share})" if message else share, WORDS_BYTES_MAX))


_ME = types.Implementation(name="treadle", version="1")


async def _wait_any(*events: asyncio.Event, timeout_s: float | None) -> None:
    """Wait until one of the events is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _with_last_output(reason: str, peer: StdioProcess | Web) -> str:
    return f"{reason}; it said: {peer.last_words}" if peer.last_words else reason


def _innermost_message(error: BaseException) -> str:
    """Return the message of the innermost error of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    # pydantic appends a link to every message.
    text = " ".join(str(error).split()).partition(" For further information")[0]
    return cut_text(text or type(error).__name__, WORDS_BYTES_MAX)
