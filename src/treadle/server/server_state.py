"""The server's state, shared by all routes: the runtime, request limits, and whether the process is shutting down."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from treadle.access.client_identity import Client
from treadle.core.errors import Exhausted, ProtocolError, UnsupportedFeature
from treadle.core.request import Request
from treadle.engine.approval_reasons import POLICY
from treadle.protocols.translation.fidelity_report import check_fidelity
from treadle.runs import Idempotency, RunHandle, RunOverrides, last_try
from treadle.runs.views.recorded_rounds import StoredRun
from treadle.runtime import Runtime
from treadle.server.auth.authentication import Clients
from treadle.server.auth.page_access import PageGate, make_gate
from treadle.server.body_memory_limit import BodiesInFlight
from treadle.server.chat_page.list_changes import ListChanges
from treadle.server.delivery.request_headers import has_default_delivery
from treadle.server.delivery.subscribers import Subscribers
from treadle.server.http_exchange import OFF_LOOP_BYTES, Exchange, HttpError
from treadle.server.workers.shared_metrics import SharedMetrics

T = TypeVar("T")
GRACE_S = 10.0
MODEL_CHARS_MAX = 512
EVERYTHING = RunOverrides()
"""The tool choice for clients that may use every tool."""

WriteScenario = Callable[[Sequence[StoredRun]], str]
"""Writes the runs of a conversation as an evaluation scenario. It is passed in, because `evals` is above `server`."""


class McpHandler(Protocol):
    """Answers requests until it is closed."""

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        ...

    async def close(self) -> None:
        """Stop answering."""
        ...


class Service:
    """The server's state. Routes get it with every exchange."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.subscribers = Subscribers(runtime.clock)
        server = runtime.settings.server
        self.bodies = BodiesInFlight(max(server.bodies_bytes_max, server.body_bytes_max))
        self.has_default_delivery = has_default_delivery(runtime.settings)
        self.is_draining = False
        self.leaving = asyncio.Event()
        self.changes: dict[str | None, ListChanges] = {}
        self.mcp: McpHandler | None = None
        self.write_scenario: WriteScenario | None = None
        self.numbers: SharedMetrics | None = None
        self.gate: PageGate = make_gate(runtime.settings, runtime.clock.now())
        self.clients = Clients(runtime, self.gate)
        runtime.metrics.show(
            "treadle_open_streams", "Answers on their way to clients.", lambda: self.subscribers.readers
        )

    @property
    def is_one_of_many(self) -> bool:
        """Return whether other workers answer on the same port."""
        return self.numbers is not None

    def first_link(self) -> str:
        """Return the path of the login link for the person who starts the server."""
        return self.gate.link_path("admin", "admin", self.runtime.clock.now())

    def signer(self, exchange: Exchange, name: str) -> str:
        """Return the name to record: that of the authenticated client, else the one that the request gives.

        A policy that answers for a person is named beside the person.
        """
        if not exchange.client.may_decide:
            return name
        return f"{name} ({exchange.client.name})" if name.startswith(POLICY) else exchange.client.name

    def body(self, exchange: Exchange) -> Awaitable[bytes]:
        """Read the exchange's body within the configured bound.

        Raises: LimitExceeded, HttpError.
        """
        server = self.runtime.settings.server
        return exchange.body(server.body_bytes_max, server.receive_timeout_s, self.bodies.add)

    async def read(self, exchange: Exchange, reader: Callable[[bytes], T]) -> T:
        """Read the exchange's body and parse it, a large one off the event loop.

        Raises: LimitExceeded, HttpError, and what the reader raises.
        """
        body = await self.body(exchange)
        return reader(body) if len(body) <= OFF_LOOP_BYTES else await asyncio.to_thread(reader, body)

    def check(self, client: Client, model: str | None = None) -> None:
        """Check that a client may use a model and that the process is not shutting down.

        Raises: HttpError, ProtocolError, Forbidden.
        """
        if self.is_draining:
            raise HttpError(503, "shutting_down", "This server is shutting down.", retry_after_s=1.0)
        if model is not None:
            if len(model) > MODEL_CHARS_MAX:
                raise ProtocolError(f"The name of the model is over {MODEL_CHARS_MAX} characters.", param="model")
            if "*" not in client.grant.models:
                client.check_model(model or self.runtime.settings.model)

    async def admit(self, client: Client, model: str | None = None) -> None:
        """Check as `check` does, and charge the client's budget and rates for a run.

        Raises: HttpError, ProtocolError, Forbidden, Exhausted, StoreError.
        """
        self.check(client, model)
        await self.runtime.accounts.admit(client)

    async def start(
        self,
        request: Request,
        client: Client,
        *,
        session_id: str | None = None,
        idempotency: Idempotency | None = None,
    ) -> RunHandle:
        """Start a client's run, or attach to the one that it started under the same idempotency key.

        A request with strict fidelity is rejected, or its run cancelled, if the upstream cannot carry all of it.

        Raises: HttpError, Unauthorised, Forbidden, Exhausted, and what `Runs.start` raises.
        """
        runtime, key_id = self.runtime, client.key_id
        if request.approvals:
            client.check_decides("Answering an approval request")
        if request.strict_fidelity:
            check_fidelity(request.notes)
        self.check(client, request.model)
        try:
            if runtime.accounts.bounds(client):
                await runtime.accounts.admit(client)
        except Exhausted:
            # Attaching to a run that exists starts nothing, so it costs nothing.
            if idempotency is None or (await last_try(runtime.store, idempotency, key_id))[1] is None:
                raise
        allowed = client.grant.tools
        instead = EVERYTHING if "*" in allowed else RunOverrides(allowed=allowed)
        handle = await runtime.runs.start(
            request, session_id=session_id, key_id=key_id, idempotency=idempotency, instead=instead
        )
        if request.strict_fidelity and not handle.is_attached:
            await _check_kept(handle)
        return handle

    async def drain(self, grace_s: float = GRACE_S) -> None:
        """Stop accepting runs, wait `grace_s` for active ones, then cancel them: every stream gets its last event."""
        self.is_draining = True
        await self.subscribers.close()
        await self.runtime.runs.close(grace_s)
        self.leaving.set()
        if self.mcp is not None:
            await self.mcp.close()


async def _check_kept(handle: RunHandle) -> None:
    """Cancel a run whose request could not be carried completely. Raises: UnsupportedFeature."""
    try:
        check_fidelity(handle.notes)
    except UnsupportedFeature:
        await handle.cancel()
        raise
