"""What all routes share: the runtime, the bounds of a request, and whether the process is leaving."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from treadle.access.client_identity import Client
from treadle.core.errors import Exhausted, ProtocolError, UnsupportedFeature
from treadle.core.request import Request
from treadle.engine.approval_reasons import POLICY
from treadle.protocols.translation.fidelity_report import check_fidelity
from treadle.runs import Idempotency, Instead, RunHandle, last_try
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
EVERYTHING = Instead()
"""What a client's runs are made with whom no tool is kept from."""

WriteScenario = Callable[[Sequence[StoredRun]], str]
"""Writes the runs of a conversation as a scenario for evaluations. The room that can is above this one."""


class McpHandler(Protocol):
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
        """Tell whether other workers answer on the same port."""
        return self.numbers is not None

    def first_link(self) -> str:
        """Return the path of a link by which whoever starts the server logs in."""
        return self.gate.link_path("admin", "admin", self.runtime.clock.now())

    def signer(self, exchange: Exchange, said: str) -> str:
        """Return in whose name something stands: of whoever is known by key or login, else whom the request names.

        A policy that answers in a person's stead is named beside the person.
        """
        if not exchange.client.may_decide:
            return said
        return f"{said} ({exchange.client.name})" if said.startswith(POLICY) else exchange.client.name

    def body(self, exchange: Exchange) -> Awaitable[bytes]:
        """Read the exchange's body within the configured bound.

        Raises: LimitExceeded, HttpError.
        """
        server = self.runtime.settings.server
        return exchange.body(server.body_bytes_max, server.receive_timeout_s, self.bodies.add)

    async def read(self, exchange: Exchange, reader: Callable[[bytes], T]) -> T:
        """Read the exchange's body and parse it, a large one off the event loop.

        Raises: LimitExceeded, HttpError, and whatever the reader refuses it with.
        """
        body = await self.body(exchange)
        return reader(body) if len(body) <= OFF_LOOP_BYTES else await asyncio.to_thread(reader, body)

    def check(self, client: Client, model: str | None = None) -> None:
        """Let a client ask a model, unless the process is leaving.

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
        """Let a client begin a run with a model, unless the process is leaving.

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
        """Start a run of a client's, or attach to the one that it started under the same idempotency key.

        A request that would rather fail than lose something is refused, or its run ended, if something of it is lost.

        Raises: HttpError, Unauthorised, Forbidden, Exhausted, and whatever the runs room refuses the request with.
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
            # What was begun already is not begun again, so it costs nothing.
            if idempotency is None or (await last_try(runtime.store, idempotency, key_id))[1] is None:
                raise
        allowed = client.grant.tools
        instead = EVERYTHING if "*" in allowed else Instead(allowed=allowed)
        handle = await runtime.runs.start(
            request, session_id=session_id, key_id=key_id, idempotency=idempotency, instead=instead
        )
        if request.strict_fidelity and not handle.is_attached:
            await _check_kept(handle)
        return handle

    async def drain(self, grace_s: float = GRACE_S) -> None:
        """Take no new run, let those going on end within the grace, then end them: every stream gets its last event."""
        self.is_draining = True
        await self.subscribers.close()
        await self.runtime.runs.close(grace_s)
        self.leaving.set()
        if self.mcp is not None:
            await self.mcp.close()


async def _check_kept(handle: RunHandle) -> None:
    """End a run of which something could not be carried. Raises: UnsupportedFeature."""
    try:
        check_fidelity(handle.notes)
    except UnsupportedFeature:
        await handle.cancel()
        raise
