"""The messages between a guest and the event loop that runs its conversations.

A guest requests a send, runs each tool call it receives, returns the results, and finally receives the outcome. The
same messages go over a queue to a thread, and over a pipe to a process.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.items import AnyItem, CallItem
from treadle.core.tool_definitions import Outcome, ServerTool, ToolSpec
from treadle.core.usage import Usage
from treadle.wasm.engine.guest_limits import Stop

log = logging.getLogger("treadle.wasm")
_PYTHON_LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
LEVELS = ("trace", "debug", "info", "warning", "error")
"""The log levels, by number."""
Stream = Literal["log", "stdout", "stderr"]
_MCP = "mcp:"
"""The prefix of the sources of MCP tools."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """A message between a guest and its host."""


class McpWishes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which of the granted MCP tools a guest wants to offer; None means all.

    Tools are named by the model's or by the server's name.
    """

    enabled: bool = True
    servers: tuple[str, ...] | None = None
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    def let_in(self, tool: ServerTool) -> bool:
        """Return whether a tool is wanted; tools of no MCP server always are."""
        if not tool.source.startswith(_MCP):
            return True
        server = tool.source.removeprefix(_MCP)
        names = {tool.name, tool.name.removeprefix(f"mcp__{server}__")}
        is_wanted = self.enabled and (self.servers is None or server in self.servers)
        return is_wanted and (self.allowed is None or bool(names & {*self.allowed})) and not names & {*self.denied}


ALL_MCP = McpWishes()


class Ask(Message, frozen=True, kw_only=True, omit_defaults=True, tag="ask"):
    """Send this conversation to the model. With `auto` the guest runs its tools, else they are only offered."""

    items: tuple[AnyItem, ...]
    tools: tuple[ToolSpec, ...] = ()
    auto: bool = False
    model: str = ""
    parameters: Mapping[str, msgspec.Raw] = {}
    max_iterations: int | None = None
    max_total_tool_calls: int | None = None
    max_tool_output_bytes: int = 65_536
    timeout_s: float | None = None
    mcp: McpWishes = ALL_MCP


class Wanted(Message, frozen=True, kw_only=True, omit_defaults=True, tag="wanted"):
    """The model calls one of the guest's tools."""

    call: CallItem
    round: int = 0
    run_id: str = ""


class Answered(Message, frozen=True, kw_only=True, omit_defaults=True, tag="answered"):
    """The outcome of a tool call; with `stop` the call ended the guest, and the run ends too."""

    outcome: Outcome
    stop: Stop | None = None


class Sent(Message, frozen=True, kw_only=True, omit_defaults=True, tag="sent"):
    """The outcome of a send: its items in order, or its error."""

    run_id: str = ""
    response_id: str = ""
    model: str = ""
    created_at: float = 0.0
    status: str = "failed"
    stop: str = "done"
    items: tuple[AnyItem, ...] = ()
    usage: Usage | None = None
    limit: str | None = None
    error: ErrorInfo | None = None
    rounds: int = 0
    calls: int = 0


class GuestOutput(Message, frozen=True, kw_only=True, omit_defaults=True, tag="said"):
    """A line that the guest logged or printed."""

    stream: Stream
    text: str
    level: int = 2


def log_output(guest: str, said: GuestOutput) -> None:
    """Write a guest's output to Treadle's log; the default when no other receiver is set."""
    log.log(_PYTHON_LEVELS[said.level], "guest says", extra={"guest": guest, "stream": said.stream, "text": said.text})


OutputHandler = Callable[[GuestOutput], None]
"""Receives what a guest logs and prints."""


class Line(Protocol):
    """A guest's connection to its host. Used by the guest's own thread only."""

    def ask(self, ask: Ask) -> None:
        """Start a send."""
        ...

    def next(self) -> Wanted | Sent:
        """Wait for the send's next tool call, or its end.

        Raises: GuestStopped, when the guest is cancelled or out of time.
        """
        ...

    def answer(self, answered: Answered) -> None:
        """Return the outcome of the last tool call."""
        ...

    def give_up(self) -> None:
        """Cancel the current send, and wait until its end is recorded."""
        ...

    def write_output(self, said: GuestOutput) -> None:
        """Forward what the guest logs or prints."""
        ...
