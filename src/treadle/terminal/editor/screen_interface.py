"""What the chat needs of an interface: lines to read, questions to ask, a surface to draw on."""

from typing import Protocol

from treadle.terminal.rendering.approval_card import CardChoice
from treadle.terminal.rendering.drawing_surface import DrawingSurface


class Actions(Protocol):
    """The actions of the chat that keys trigger."""

    @property
    def is_running(self) -> bool:
        """Return whether a turn is running."""
        ...

    def status_line(self) -> str:
        """Return the line below the editor."""
        ...

    def activity_line(self) -> str:
        """Return what the turn waits for; empty when it waits for nothing."""
        ...

    def interrupt(self) -> None:
        """Stop the turn."""
        ...

    def press(self, action: str) -> None:
        """Run the action of a key: policy, unfold, earlier."""
        ...

    def is_instant(self, text: str) -> bool:
        """Return whether a command runs at once, even during a turn."""
        ...

    def do_now(self, text: str) -> None:
        """Run such a command."""
        ...


class ChatScreen(DrawingSurface, Protocol):
    """The screen of the chat: input, questions and output."""

    async def open(self) -> None:
        """Take over the terminal; typed text is queued until it is read."""
        ...

    def serve(self, actions: Actions) -> None:
        """Connect the keys to the chat."""
        ...

    async def close(self) -> None:
        """Restore the terminal."""
        ...

    async def read(self) -> str | None:
        """Return the next input; None when the person has left."""
        ...

    async def left(self) -> None:
        """Return when the person wants to leave while no input is read; never, where a signal does this."""
        ...

    async def choose(self, choices: list[CardChoice]) -> str | None:
        """Return the key of the chosen answer; None when no person can answer. May be cancelled."""
        ...

    async def line(self, label: str, text: str = "") -> str | None:
        """Ask for one line that starts with a text; None when the person cancels."""
        ...

    def offer(self, text: str) -> None:
        """Put a text into the editor, to be edited and sent."""
        ...

    def redraw(self) -> None:
        """Draw the screen again."""
        ...

    def clear(self) -> None:
        """Clear the screen."""
        ...

    def copy(self, text: str) -> bool:
        """Put a text on the clipboard; return whether there is one."""
        ...

    def refresh(self) -> None:
        """Redraw the status line."""
        ...

    @property
    def echoes(self) -> bool:
        """Return whether typed text is on the screen already."""
        ...

    @property
    def can_ask(self) -> bool:
        """Return whether a person can be asked."""
        ...
