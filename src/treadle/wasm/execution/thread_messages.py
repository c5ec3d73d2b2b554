"""What goes between a guest's thread and the event loop that runs its conversations, as messages.

A guest asks for a send; it is told which of its tools to call, answers each, and at the end gets what was said. The
same messages go over a queue when the guest is a thread, and over a pipe when it is a process.
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
"""The levels of `log`, by number."""
Stream = Literal["log", "stdout", "stderr"]
_MCP = "mcp:"
"""How the sources of MCP servers' tools begin."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Something said between a guest and its host."""


class McpWishes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which of the MCP servers' tools that a guest was granted it wants offered: None wants all.

    Tools are named as the model calls them or as their server does.
    """

    enabled: bool = True
    servers: tuple[str, ...] | None = None
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    def let_in(self, tool: ServerTool) -> bool:
        """Tell whether a tool is wanted; one that is of no MCP server always is."""
        if not tool.source.startswith(_MCP):
            return True
        server = tool.source.removeprefix(_MCP)
        names = {tool.name, tool.name.removeprefix(f"mcp__{server}__")}
        is_wanted = self.enabled and (self.servers is None or server in self.servers)
        return is_wanted and (self.allowed is None or bool(names & {*self.allowed})) and not names & {*self.denied}


ALL_MCP = McpWishes()


class Ask(Message, frozen=True, kw_only=True, omit_defaults=True, tag="ask"):
    """Send this conversation to the model. With `auto` the tools are the guest's to run, else they are only offered."""

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
    """The model calls one of the guest's tools, in that round of the run."""

    call: CallItem
    round: int = 0
    run_id: str = ""


class Answered(Message, frozen=True, kw_only=True, omit_defaults=True, tag="answered"):
    """What the tool gave; with `stop` the guest did not survive it and the run ends here."""

    outcome: Outcome
    stop: Stop | None = None


class Sent(Message, frozen=True, kw_only=True, omit_defaults=True, tag="sent"):
    """How a send ended: what was said and called, in order, or why nothing was."""

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


class Said(Message, frozen=True, kw_only=True, omit_defaults=True, tag="said"):
    """The guest logs or prints something."""

    stream: Stream
    text: str
    level: int = 2


def log_said(guest: str, said: Said) -> None:
    """Put what a guest says into Treadle's own log, where nobody else listens to it."""
    log.log(_PYTHON_LEVELS[said.level], "guest says", extra={"guest": guest, "stream": said.stream, "text": said.text})


Hear = Callable[[Said], None]
"""Who hears what a guest logs and prints."""


class Line(Protocol):
    """A guest's way to its host. Used by the guest's own thread only."""

    def ask(self, ask: Ask) -> None:
        """Begin a send."""
        ...

    def next(self) -> Wanted | Sent:
        """Wait for what the send wants next, or its end.

        Raises: Stopped, when the guest was cancelled or its time is used up meanwhile.
        """
        ...

    def answer(self, answered: Answered) -> None:
        """Answer the call that was wanted last."""
        ...

    def give_up(self) -> None:
        """End the send that is going on, and wait until that is written down."""
        ...

    def say(self, said: Said) -> None:
        """Pass on what the guest logs or prints."""
        ...
