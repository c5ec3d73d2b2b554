"""What a tool may know of the run that asks for it, and how it talks back while it works.

A parameter annotated `ToolContext` receives one; it never appears in the tool's schema.
"""

import threading
from collections.abc import Callable

WARNINGS_MAX = 20


class ToolContext:
    """The side of a call that the model does not see. Safe to use from the thread of a sync tool."""

    def __init__(
        self,
        *,
        run_id: str = "",
        session_id: str | None = None,
        call_id: str = "",
        output_bytes_max: int = 65_536,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.run_id = run_id
        self.session_id = session_id
        self.call_id = call_id
        self.output_bytes_max = output_bytes_max
        self._report = report
        self._is_over = False
        self._pauses: list[threading.Event] = []
        self._warnings: list[str] = []

    @property
    def idempotency_key(self) -> str:
        """Return what stays the same when a crash makes the call run again: hand it to whatever has the effect."""
        return f"{self.run_id}:{self.call_id}"

    @property
    def cancelled(self) -> bool:
        """Tell whether nobody waits for the result any more: a long sync tool should look and stop."""
        return self._is_over

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what the tool warned of."""
        return tuple(self._warnings)

    def progress(self, text: str) -> None:
        """Tell whoever watches the run how far the work is; nothing happens when nobody does."""
        if self._report is not None and not self._is_over:
            self._report(text)

    def warn(self, text: str) -> None:
        """Add a line that the model reads below the result."""
        if len(self._warnings) < WARNINGS_MAX:
            self._warnings.append(text)

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Pause a sync tool, at most until nobody waits for it any more; tell whether that is so."""
        pause = threading.Event()
        self._pauses.append(pause)
        try:
            # Looked at only now: whoever ends the call meanwhile finds the pause, or this finds that it is over.
            return self._is_over or pause.wait(timeout_s)
        finally:
            self._pauses.remove(pause)

    def cancel(self) -> None:
        """Let the tool know that nobody waits any more."""
        self._is_over = True
        for pause in [*self._pauses]:
            pause.set()


UNSEEN = ToolContext()
"""Stands for the context of every call of a tool that takes none."""
