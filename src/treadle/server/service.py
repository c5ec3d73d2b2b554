"""What all routes share: the runtime, the bounds of a request, and whether the process is leaving."""

from typing import Protocol

from treadle.canon.request import Request
from treadle.runs import Idempotency, RunHandle
from treadle.runtime import Runtime
from treadle.server.delivery.audience import Audience
from treadle.server.http import Exchange, HttpError

BODY_TIMEOUT_S = 60.0
GRACE_S = 10.0


class Door(Protocol):
    """Something that answers requests for as long as the server runs."""

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        ...

    async def close(self) -> None:
        """Leave."""
        ...


class Service:
    """The server's state. Routes get it with every exchange."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.audience = Audience(runtime.clock)
        self.is_draining = False
        self.mcp: Door | None = None

    async def body(self, exchange: Exchange) -> bytes:
        """Read the exchange's body within the configured bound.

        Raises: LimitExceeded, HttpError.
        """
        return await exchange.body(self.runtime.settings.server.body_bytes_max, BODY_TIMEOUT_S)

    async def start(
        self, request: Request, *, session_id: str | None = None, idempotency: Idempotency | None = None
    ) -> RunHandle:
        """Start a run, or attach to the one that was started under the same key, unless the process is leaving.

        Raises: HttpError, and whatever the runs room refuses the request with.
        """
        if self.is_draining:
            raise HttpError(503, "shutting_down", "This server is shutting down.", retry_after_s=1.0)
        return await self.runtime.runs.start(request, session_id=session_id, idempotency=idempotency)

    async def drain(self, grace_s: float = GRACE_S) -> None:
        """Take no new run, let those going on end within the grace, then end them: every stream gets its last event."""
        self.is_draining = True
        await self.audience.close()
        await self.runtime.runs.close(grace_s)
        if self.mcp is not None:
            await self.mcp.close()
