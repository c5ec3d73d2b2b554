"""One process's runtime: builds all parts from the settings, and opens, uses and closes them together."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from treadle.access.client_identity import LOCAL, Client
from treadle.access.key_accounts import KeyAccounts
from treadle.config import Settings, load_settings
from treadle.config import mcp_settings as mcp
from treadle.core.errors import ConfigError, Conflict, RequestError, ToolFailed
from treadle.core.events import ApprovalRequested, RunEnded, RunEvent, ToolFinished
from treadle.core.ids import SESSION
from treadle.core.items import ResultItem, text_message
from treadle.core.request import Request
from treadle.core.tool_definitions import CallContext
from treadle.engine.ports import Model
from treadle.journal.journal_interface import SessionRow, Store
from treadle.journal.store_url import MEMORY
from treadle.providers.direct_call_model import DirectModel, direct_request
from treadle.runs import RunDependencies, RunOverrides, Runs
from treadle.runs.approvals.decisions import Approvals
from treadle.runs.approvals.durable_approver import DurableApprover
from treadle.runtime.database_clock import SharedClock
from treadle.runtime.injected_parts import DEFAULT_PARTS, Parts
from treadle.runtime.port_settings import make_own_ports
from treadle.runtime.provider_setup import (
    ConfiguredModels,
    Prices,
    make_client,
    make_endpoint,
    make_router,
    open_cassettes,
)
from treadle.runtime.replica_comparison import Facts, Replicas, facts_of
from treadle.runtime.store_and_limits import (
    account_limits,
    approver_rules,
    known_secrets,
    make_limiter,
    make_runner,
    make_store,
    make_tracer,
    runner_limits,
    runs_options,
)
from treadle.runtime.store_health_check import StoreHealth
from treadle.runtime.toolset import (
    add_guest_tools,
    compiled_folder,
    guest_modules,
    make_local_tools,
    make_registry,
    make_sandbox,
)
from treadle.telemetry import Metrics, Redactor
from treadle.telemetry.run_observer import Tracer
from treadle.tools import Tool, ToolRunner
from treadle.tools.demo_tools import DEMO_TOOLS
from treadle.tools.tool_loading import Reloader
from treadle.wasm.engine.compiler import Compiler
from treadle.wasm.execution.conversation_runs import ConversationRuns
from treadle.wasm.guest_pool import GuestModule, GuestPool
from treadle.wasm.guest_service import Guests
from treadle.workspace.model_tools import ProposalTerms, workspace_tools
from treadle.workspace.workspace_service import Workspaces

SESSION_NAME_CHARS_MAX = 200
QUEUED_TEXT = "Writes that wait for the store; past 1,000 runs wait for it."
SKEW_TEXT = "How far this machine's clock is ahead of the database's, whose time holds."
RELOAD_S = 0.5
"""How often `serve --reload` checks tool files for changes."""


class Runtime:
    """Everything one process needs; use it as an async context manager.

    `tools` are functions decorated with `@tool`, added to those of the settings. `model` answers every request.
    Without settings, `treadle.toml` and the environment are read as by `treadle serve`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        tools: Iterable[Tool] = (),
        model: Model | None = None,
        parts: Parts = DEFAULT_PARTS,
    ) -> None:
        env = os.environ if parts.env is None else parts.env
        self.settings = load_settings(env=env) if settings is None else settings
        self.ids = parts.ids
        self._report, self._is_local = parts.report, parts.is_local or not parts.is_attended
        self._listeners: dict[str, Callable[[str], None]] = {}
        self._was_opened = False
        self.clock = SharedClock(parts.clock)
        self._measuring: asyncio.Task[None] | None = None
        self.metrics = Metrics()
        self._spans = make_tracer(self.settings, env)
        tracer = parts.tracer or self._spans
        self.prices = Prices(self.settings)
        cassettes = open_cassettes(self.settings)
        endpoints = [
            make_endpoint(upstream, env, self.settings, cassettes.get(upstream.name))
            for upstream in self.settings.upstream
        ]
        self.redactor = Redactor(known_secrets(self.settings, endpoints, env))
        is_demo = self.settings.offers_demo_tools and model is None and not parts.models
        self.store: Store = make_store(self.settings, self.clock, env)
        self.own_ports = make_own_ports(self.settings, env)
        self._own_paths = mcp.own_paths(self.settings, env)
        self.sandbox = make_sandbox(self.settings.tools.local, env, self.own_ports, self._own_paths)
        self.registry = make_registry(self.settings, [*tools], DEMO_TOOLS if is_demo else ())
        space = self.settings.workspace
        self.workspaces = Workspaces(self.store, ids=self.ids, clock=self.clock.now, expires_s=space.expires_s)
        modules = guest_modules(self.settings, env)
        compiler, live_max = Compiler(compiled_folder(self.settings, env)), self.settings.guests.live_max
        self._guest_pool = GuestPool(compiler, live_max=live_max, meter=self.metrics, tracer=tracer)
        self._add_tools(modules)
        self.mcp = mcp.make_servers(self.settings, env, self.registry, self._publish_tools, self.own_ports.closed)
        client = make_client(self.settings, endpoints, cassettes, self.clock)
        self.router = make_router(self.settings, endpoints, client, model, parts, self.metrics)
        self.metrics.show_upstreams(self.router.health)
        self.metrics.show("treadle_clock_skew_seconds", SKEW_TEXT, lambda: self.clock.skew_s)
        self.metrics.show("treadle_store_queued_writes", QUEUED_TEXT, lambda: self.store.queued)
        self._runner = ToolRunner(
            self.registry,
            clock=self.clock,
            limits=runner_limits(self.settings),
            keep=self._store_blob,
            report=self._report_progress,
        )
        self.approvals = Approvals(
            self.store, self.clock, self.ids, arguments_bytes_max=self.settings.limits.arguments_bytes_max
        )
        self.limiter = make_limiter(self.settings, self.clock, self.metrics, env, parts.workers)
        self.accounts = KeyAccounts(
            self.store.keys, self.limiter, self.clock, self.prices.cost, account_limits(self.settings)
        )
        options = runs_options(self.settings)
        if parts.owner:
            options = msgspec.structs.replace(options, owner=parts.owner)
        self.health = StoreHealth(self.store, self.clock, self.metrics)
        self.replicas = Replicas(self.store, self.clock, self.metrics, options.owner, self._facts)
        self.runs = Runs(self._run_dependencies(parts, env, tracer), options)
        conversation_runs = ConversationRuns(
            self.runs, self.registry, self._runner, options.limits, default_model=self.settings.model
        )
        self.guests = Guests(self._guest_pool, conversation_runs, modules)

    def _run_dependencies(self, parts: Parts, env: Mapping[str, str], tracer: Tracer | None) -> RunDependencies:
        """Return the dependencies of runs."""
        rules = approver_rules(self.settings, is_attended=parts.is_attended)
        return RunDependencies(
            store=self.store,
            quotas=self.accounts,
            runner=make_runner(self.settings, env, parts.workers),
            approver=DurableApprover(self.store, self.clock, self.ids, rules, self.registry),
            models=ConfiguredModels(self.router, serves_calls=self.settings.server.mcp),
            tools=self.registry,
            toolbox=self._runner,
            clock=self.clock,
            ids=self.ids,
            metrics=self.metrics,
            tracer=tracer,
            elsewhere=self.replicas.are_tools_elsewhere,
        )

    def _add_tools(self, modules: Sequence[GuestModule]) -> None:
        """Add the built-in tools: local files and shell, web, workspaces, and WASM guests."""
        for each in make_local_tools(self.settings.tools, self.sandbox, self.store, self.own_ports, self._own_paths):
            self.registry.add(each)
        space = self.settings.workspace
        if space.enabled and self.settings.tools.enabled:
            terms = ProposalTerms(default=space.default, wait_s=space.wait_s, read_bytes_max=space.read_bytes_max)
            for each in workspace_tools(self.workspaces, self.store, terms):
                self.registry.add(each)
        for module in modules:
            if module.kind == "tools" and self.settings.tools.enabled:
                add_guest_tools(self.registry, self._guest_pool, module)
        self._publish_tools()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open everything and recover the runs of dead processes. Allowed once; on failure everything is closed.

        Raises: StoreError, ConfigError; RuntimeError the second time.
        """
        if self._was_opened:
            raise RuntimeError("A Runtime is opened once, and is of one event loop: make another one.")
        self._was_opened = True
        try:
            await self.store.open()
            if await self.clock.measure(self.store.server_time):
                measuring = self.clock.measure_forever(self.store.server_time)
                self._measuring = asyncio.create_task(measuring, name="treadle-clock")
            if self.mcp is not None:
                await self.mcp.open()
            if self.store.path != MEMORY:
                self.health.open()
                await self.replicas.open()
            await self.runs.open()
        except BaseException:
            await self.close()
            raise

    async def close(self, grace_s: float = 0.0) -> None:
        """End active runs and close everything."""
        await self.guests.close()
        await self.runs.close(grace_s)
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.wait({self._measuring})
        await self.accounts.close()
        if self.mcp is not None:
            await self.mcp.close()
        await self.router.close()
        await self.limiter.close()
        self._runner.close()
        self.sandbox.close()
        await self.health.close()
        await self.replicas.close()
        await self.store.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.shutdown)

    async def run(
        self, prompt: str, *, model: str | None = None, session: str | None = None
    ) -> AsyncGenerator[RunEvent, None]:
        """Run a prompt and yield its events; leaving the iteration early cancels the run.

        Raises: RequestError, StoreError.
        """
        request = Request(protocol="treadle", model=model or "", items=(text_message("user", prompt),))
        session_id = None if session is None else await self.session(session)
        handle = await self.runs.start(request, session_id=session_id)
        ended = False
        try:
            async for batch in handle.events():
                for numbered in batch:
                    ended = ended or isinstance(numbered.event, RunEnded)
                    if ended:
                        await handle.wait()
                    yield numbered.event
        finally:
            if not ended:
                await handle.cancel()

    async def session(self, name: str, *, key_id: str = "") -> str:
        """Return the id of a key's session by name, creating it if needed.

        Raises: RequestError for an invalid name.
        """
        found = await self.store.find_session(name, key_id=key_id)
        if found is not None:
            return found.id
        if not name.strip() or len(name) > SESSION_NAME_CHARS_MAX:
            raise RequestError(f"A session's name has 1 to {SESSION_NAME_CHARS_MAX} characters.", param="session")
        now = self.clock.now()
        row = SessionRow(id=self.ids.new(SESSION), name=name, key_id=key_id, created_at=now, updated_at=now)
        try:
            await self.store.create_session(row)
        except Conflict:
            # A concurrent request of the same key created it.
            made = await self.store.find_session(name, key_id=key_id)
            if made is None:
                raise
            return made.id
        return row.id

    async def call(
        self, tool: str, arguments: dict[str, Any], heard: Callable[[str], None], client: Client = LOCAL
    ) -> ResultItem:
        """Call one tool in its own run, without a model; `heard` receives its progress. Cancelling cancels the run.

        Raises: RequestError, StoreError; ToolFailed, if the run ended without a result.
        """
        instead = RunOverrides(model=DirectModel(), allowed=client.tools)
        handle = await self.runs.start(direct_request(tool, arguments), key_id=client.key_id, instead=instead)
        self._listeners[handle.run_id] = heard
        result, ended = None, None
        try:
            async for batch in handle.events():
                for numbered in batch:
                    match numbered.event:
                        case ToolFinished():
                            result = numbered.event.result
                        case RunEnded():
                            ended = numbered.event
                        case ApprovalRequested():
                            heard(f"waiting for a person's approval ({numbered.event.approval_id})")
                        case _:
                            pass
        finally:
            del self._listeners[handle.run_id]
            if ended is None:
                await handle.cancel()
        if result is None:
            why = ended.error.message if ended is not None and ended.error is not None else "it has no result"
            raise ToolFailed(f"The call was not made: {why} (run {handle.run_id}).")
        return result

    def _report_progress(self, context: CallContext, text: str) -> None:
        """Pass a progress message of a tool to its listeners."""
        if self._report is not None:
            self._report(context, text)
        if (listener := self._listeners.get(context.run_id)) is not None:
            listener(text)

    async def watch_tools(self, told: Callable[[str, list[str] | ConfigError], None]) -> None:
        """Reload tool files and modules when they change, forever; `told` receives the outcome of each reload."""

        def swap(names: Iterable[str], tools: Sequence[Tool]) -> None:
            self.registry.swap(names, tools)
            self._publish_tools()

        reloader = Reloader(self.settings.tools.load, swap)
        while True:
            await self.clock.sleep(RELOAD_S)
            for place, outcome in reloader.look().items():
                told(place, outcome)

    def _publish_tools(self) -> None:
        """Publish the current tools to metrics and replicas."""
        self.metrics.set_tool_names(tool.name for tool in self.registry.tools())
        if self._was_opened:
            self.replicas.compare_soon()

    def _facts(self, secret: str) -> Facts:
        return facts_of(self.settings, self.registry.tools(), secret, is_local=self._is_local)

    async def _store_blob(self, data: bytes, context: CallContext) -> str:
        return await self.store.put_blob(data, run_id=context.run_id)
