"""The context a tool receives: its run's identifiers, progress reports, warnings and cancellation.

A parameter annotated `ToolContext` receives one; it never appears in the tool's schema.
"""

import threading
from collections.abc import Callable

WARNINGS_MAX = 20


class ToolContext:
    """The part of a call that the model does not see. Safe to use from a sync tool's thread."""

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
        """Return a key that stays the same when a crash makes the call run again; pass it to the system it changes."""
        return f"{self.run_id}:{self.call_id}"

    @property
    def cancelled(self) -> bool:
        """Return whether the call was cancelled or timed out. A long sync tool should check this and stop."""
        return self._is_over

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings added so far."""
        return tuple(self._warnings)

    def progress(self, text: str) -> None:
        """Report progress to the clients that watch the run; ignored once the call has ended."""
        if self._report is not None and not self._is_over:
            self._report(text)

    def warn(self, text: str) -> None:
        """Add a line that the model reads below the result."""
        if len(self._warnings) < WARNINGS_MAX:
            self._warnings.append(text)

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Sleep in a sync tool until the timeout or the call's cancellation; return whether it was cancelled."""
        pause = threading.Event()
        self._pauses.append(pause)
        try:
            # Check only after registering the event: a concurrent cancel() either sets it or is seen here.
            return self._is_over or pause.wait(timeout_s)
        finally:
            self._pauses.remove(pause)

    def cancel(self) -> None:
        """Mark the call as over and wake the tool if it sleeps."""
        self._is_over = True
        for pause in [*self._pauses]:
            pause.set()


UNSEEN = ToolContext()
"""Shared placeholder for tools that take no context."""
