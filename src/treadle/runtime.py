"""Builds everything a process needs from its settings. Server, terminal, evaluations and library all start here."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from treadle.canon.errors import ConfigError, NotFound, RequestError, ToolFailed
from treadle.canon.events import ApprovalRequested, RunEnded, RunEvent, ToolFinished
from treadle.canon.ids import SESSION, IdSource
from treadle.canon.items import ResultItem, text_message
from treadle.canon.request import Request
from treadle.canon.tools import CallContext, ToolPolicy
from treadle.config import LocalSection, Settings, ToolsSection, Upstream, load_settings, mcp, sqlite_path
from treadle.config.reader import data_directory
from treadle.config.settings import CASSETTE, DEMO_MODEL, TIERS
from treadle.engine.limits import Limits
from treadle.engine.ports import Clock, Model
from treadle.guests.modules import ToolGuest
from treadle.guests.quarters import GuestModule, Quarters
from treadle.guests.sandbox.compiler import Compiler
from treadle.guests.sandbox.limits import SandboxLimits
from treadle.guests.service import Guests
from treadle.guests.stage.desk import Desk
from treadle.runs import Rooms, Runs, RunsOptions
from treadle.runs.offers import OfferRules
from treadle.store.address import MEMORY, PostgresAddress, is_postgres
from treadle.store.journal import SessionRow, Store
from treadle.store.open import open_store
from treadle.telemetry import Metrics, Redactor
from treadle.tools import Registry, Runner, RunnerLimits, Tool
from treadle.tools.demo import DEMO_TOOLS
from treadle.tools.load import Reloader, load
from treadle.tools.local import Shelf, local_tools
from treadle.tools.runner import Report
from treadle.tools.sandbox import Rules as SandboxRules
from treadle.tools.sandbox import Sandbox
from treadle.tools.web import GuardedClient, web_tools
from treadle.tools.web import Policy as WebPolicy
from treadle.upstream.cassette import Cassette, Player, Recorder, Secrets, TapedClient, load_cassette
from treadle.upstream.demo import DemoModel
from treadle.upstream.direct import DIRECT_MODEL, DirectModel, direct_request
from treadle.upstream.endpoint import Endpoint, Secret
from treadle.upstream.http import HttpClient
from treadle.upstream.router import Route, Router
from treadle.wire.dialects.stage import RepairRules
from treadle.workspace.desk import Workspaces
from treadle.workspace.tools import Terms, workspace_tools

SESSION_NAME_CHARS_MAX = 200
STORE_NAME = "treadle.db"
RELOAD_S = 0.5
"""How often `serve --reload` looks whether files of tools changed."""
LIMIT_NOTICE_BYTES = 256
"""What is left free in a result, so that it may also name a limit and still keep to the cap."""
DEMO_DELAY_S = 0.02
"""How long the demo model pauses between pieces of its answer, so that a person sees it stream."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Return the wall clock."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Ids that nobody can guess."""

    def new(self, prefix: str) -> str:
        """Return a new id."""
        return f"{prefix}_{secrets.token_hex(12)}"


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What tests and embedders may bring instead of the default: a clock, ids, an environment, more models.

    `report` hears what tools say of their progress.
    """

    clock: Clock = SystemClock()
    ids: IdSource = RandomIds()
    env: Mapping[str, str] | None = None
    models: Mapping[str, Model] = {}
    report: Report | None = None
    demo_delay_s: float = DEMO_DELAY_S


DEFAULT_PARTS = Parts()


class Runtime:
    """One process's Treadle: use it as an async context manager.

    `tools` are functions decorated with `@tool`; they join those of the settings. `model` answers every request.
    Without settings, `treadle.toml` and the environment are read as `treadle serve` does.
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
        self._report = parts.report
        self._listeners: dict[str, Callable[[str], None]] = {}
        self.clock = parts.clock
        self.metrics = Metrics()
        cassettes = _cassettes(self.settings)
        endpoints = [
            _endpoint(upstream, env, self.settings, cassettes.get(upstream.name)) for upstream in self.settings.upstream
        ]
        self.redactor = Redactor(_secrets(self.settings, endpoints, env))
        is_demo = self.settings.offers_demo_tools and model is None and not parts.models
        self.store: Store = _store(self.settings, self.clock, env)
        self.sandbox = _sandbox(self.settings.tools.local, env)
        self.registry = _registry(self.settings, [*tools], DEMO_TOOLS if is_demo else ())
        for each in _local_tools(self.settings.tools, self.sandbox, self.store):
            self.registry.add(each)
        space = self.settings.workspace
        self.workspaces = Workspaces(self.store, ids=self.ids, clock=self.clock.now, expires_s=space.expires_s)
        if space.enabled and self.settings.tools.enabled:
            terms = Terms(default=space.default, wait_s=space.wait_s, read_bytes_max=space.read_bytes_max)
            for each in workspace_tools(self.workspaces, self.store, terms):
                self.registry.add(each)
        modules = guest_modules(self.settings)
        self._quarters = Quarters(
            Compiler(_compiled_folder(self.settings, env)), live_max=self.settings.guests.live_max, meter=self.metrics
        )
        for module in modules:
            if module.kind == "tools" and self.settings.tools.enabled:
                _add_guest_tools(self.registry, self._quarters, module)
        self._know_tools()
        self.mcp = mcp.make_servers(self.settings, env, self.registry, self._know_tools)
        client = _client(self.settings, endpoints, cassettes, self.clock)
        self.router = _router(self.settings, endpoints, client, model, parts)
        self._runner = Runner(
            self.registry,
            clock=self.clock,
            limits=_runner_limits(self.settings),
            keep=self._keep,
            report=self._tell,
        )
        rooms = Rooms(
            store=self.store,
            models=_Models(self.router, serves_calls=self.settings.server.mcp),
            tools=self.registry,
            toolbox=self._runner,
            clock=self.clock,
            ids=self.ids,
            metrics=self.metrics,
        )
        options = _runs_options(self.settings)
        self.runs = Runs(rooms, options)
        desk = Desk(self.runs, self.registry, self._runner, options.limits, default_model=self.settings.model)
        self.guests = Guests(self._quarters, desk, modules)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store and take up what a dead process left.

        Raises: StoreError, saying what to do.
        """
        await self.store.open()
        if self.mcp is not None:
            await self.mcp.open()
        await self.runs.open()

    async def close(self, grace_s: float = 0.0) -> None:
        """End what is going on, properly, and let go of everything."""
        await self.guests.close()
        await self.runs.close(grace_s)
        if self.mcp is not None:
            await self.mcp.close()
        await self.router.close()
        self._runner.close()
        self.sandbox.close()
        await self.store.close()

    async def run(
        self, prompt: str, *, model: str | None = None, session: str | None = None
    ) -> AsyncGenerator[RunEvent, None]:
        """Run a prompt and yield the same events as the server; leaving early cancels the run.

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

    async def session(self, name: str) -> str:
        """Return the id of the session of that name, made now if there is none.

        Raises: RequestError for a name that cannot be one.
        """
        found = await self.store.find_session(name, key_id="")
        if found is not None:
            return found.id
        if not name.strip() or len(name) > SESSION_NAME_CHARS_MAX:
            raise RequestError(f"A session's name has 1 to {SESSION_NAME_CHARS_MAX} characters.", param="session")
        now = self.clock.now()
        row = SessionRow(id=self.ids.new(SESSION), name=name, created_at=now, updated_at=now)
        await self.store.create_session(row)
        return row.id

    async def call(self, tool: str, arguments: dict[str, Any], heard: Callable[[str], None]) -> ResultItem:
        """Make one call in a run of its own, without a model; `heard` is told of its progress. Leaving cancels it.

        Raises: RequestError, StoreError; ToolFailed, when the run ended without a result.
        """
        handle = await self.runs.start(direct_request(tool, arguments))
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

    def _tell(self, context: CallContext, text: str) -> None:
        """Pass on what a tool says of its progress, to whoever listens."""
        if self._report is not None:
            self._report(context, text)
        if (heard := self._listeners.get(context.run_id)) is not None:
            heard(text)

    async def watch_tools(self, told: Callable[[str, list[str] | ConfigError], None]) -> None:
        """Load files and modules of tools again when they change, for ever; `told` hears what came of it."""
        timeout_s = self.settings.limits.tool_timeout_s

        def swap(names: Iterable[str], tools: Sequence[Tool]) -> None:
            self.registry.swap(names, [_with_timeout(tool, timeout_s) for tool in tools])
            self._know_tools()

        reloader = Reloader(self.settings.tools.load, swap)
        while True:
            await self.clock.sleep(RELOAD_S)
            for place, outcome in reloader.look().items():
                told(place, outcome)

    def _know_tools(self) -> None:
        """Let metrics name the tools there are now."""
        self.metrics.know_tools(tool.name for tool in self.registry.tools())

    async def _keep(self, data: bytes, context: CallContext) -> str:
        return await self.store.put_blob(data, run_id=context.run_id)


class _Models:
    """The models of the router, and the one that stands behind calls made without any, where such are served."""

    def __init__(self, router: Router, *, serves_calls: bool) -> None:
        self._router = router
        self._serves_calls = serves_calls

    def model_for(self, name: str) -> Model:
        """Return the model that answers to a name. Raises: NotFound."""
        if name != DIRECT_MODEL:
            return self._router.model_for(name)
        if not self._serves_calls:
            raise NotFound(f"no upstream serves the model {name!r}", code="model_not_found", param="model")
        return DirectModel()


def _cassettes(settings: Settings) -> dict[str, Cassette]:
    """Load the recordings that upstreams play, by upstream."""
    return {
        upstream.name: load_cassette(Path(upstream.base_url.removeprefix(CASSETTE)).expanduser(), upstream.name)
        for upstream in settings.upstream
        if upstream.base_url.startswith(CASSETTE)
    }


def _endpoint(
    upstream: Upstream, env: Mapping[str, str], settings: Settings, cassette: Cassette | None = None
) -> Endpoint:
    """Return an upstream as an endpoint; one that plays a cassette is what was recorded."""
    value = env.get(upstream.key_env, "") if upstream.key_env else ""
    if cassette is not None:
        recorded = cassette.header
        upstream = msgspec.structs.replace(
            upstream,
            base_url=recorded.base_url,
            protocol=recorded.protocol,
            quirks=recorded.quirks,
            models=upstream.models or cassette.models,
        )
    return Endpoint(
        name=upstream.name,
        base_url=upstream.base_url,
        protocol=upstream.protocol,
        key=Secret(value) if value else None,
        key_env=upstream.key_env,
        headers=upstream.headers,
        quirks=upstream.quirks,
        models=upstream.models,
        repair=repair_rules(upstream.repair, settings),
        connect_s=upstream.connect_s,
        idle_s=upstream.idle_s or settings.limits.idle_s,
    )


def repair_rules(chosen: tuple[str, ...] | None, settings: Settings) -> RepairRules:
    """Return which calls in text are looked for in answers: the tiers and dialects chosen, else those of all."""
    section = settings.repair
    if chosen is None:
        return RepairRules(tiers=section.tiers, dialects=section.dialects, held_chars_max=section.held_chars_max)
    return RepairRules(
        tiers=tuple(tier for tier in TIERS if tier in chosen),
        dialects=tuple(name for name in chosen if name not in TIERS),
        held_chars_max=section.held_chars_max,
    )


def _client(
    settings: Settings, endpoints: Sequence[Endpoint], cassettes: Mapping[str, Cassette], clock: Clock
) -> HttpClient:
    """Return the client that asks the endpoints, plays the cassettes and records, as far as any of that is wanted."""
    if not cassettes and not settings.record:
        return HttpClient()
    secrets = Secrets(endpoints)
    speeds = {upstream.name: upstream.cassette_speed for upstream in settings.upstream}
    players = {
        name: Player(cassette, name=name, speed=speeds[name], secrets=secrets, sleep=clock.sleep)
        for name, cassette in cassettes.items()
    }
    folder = Path(settings.record).expanduser()
    recorder = Recorder(folder, secrets, now=clock.now, monotonic=clock.monotonic) if settings.record else None
    return TapedClient(players=players, recorder=recorder)


def _router(
    settings: Settings, endpoints: Sequence[Endpoint], client: HttpClient, model: Model | None, parts: Parts
) -> Router:
    """Route to the configured endpoints, to the models brought along, and to the demo model where there is no other."""
    models = dict(parts.models)
    default = settings.model
    if model is not None:
        default = default if default and default != DEMO_MODEL else "model"
        return Router(client=client, ids=parts.ids, models={default: model, **models}, default=default)
    if not endpoints and not models:
        models[DEMO_MODEL] = DemoModel(parts.ids, delay_s=parts.demo_delay_s, sleep=parts.clock.sleep)
    routes = [
        Route(
            model=route.model,
            upstream=route.upstream,
            rename=route.rename,
            repair=None if route.repair is None else repair_rules(route.repair, settings),
        )
        for route in settings.route
    ]
    return Router(endpoints, client=client, ids=parts.ids, routes=routes, models=models, default=default)


def _registry(settings: Settings, brought: Sequence[Tool], demo: Sequence[Tool]) -> Registry:
    """Collect the server tools: those brought along, those of the settings, and the demo's where there are no own."""
    chosen = settings.tools
    registry = Registry(enabled=("*",) if chosen.enabled else ())
    own = [*brought, *(loaded for place in chosen.load for loaded in load(place))]
    for each in own or demo:
        registry.add(_with_timeout(each, settings.limits.tool_timeout_s))
    return registry


def _with_timeout(tool: Tool, timeout_s: float) -> Tool:
    """Give a tool that names no time of its own the configured one."""
    if tool.policy.timeout_s != ToolPolicy().timeout_s or timeout_s == tool.policy.timeout_s:
        return tool
    return tool.under(msgspec.structs.replace(tool.policy, timeout_s=timeout_s))


def guest_modules(settings: Settings) -> list[GuestModule]:
    """Return the configured WASM guests with the limits that hold for each."""
    return [
        GuestModule(
            name=guest.name,
            path=guest.path,
            kind=guest.kind,
            isolation=guest.isolation or settings.guests.isolation,
            engine=settings.guests.engine,
            limits=guest_limits(settings, is_tool=guest.kind == "tools"),
            model=guest.model,
            grants=guest.grants,
            effect=guest.effect,
            approval=guest.approval,
            schema=guest.schema,
        )
        for guest in settings.guest
    ]


def guest_limits(settings: Settings, *, is_tool: bool) -> SandboxLimits:
    """Return what one WASM guest may use."""
    chosen = settings.guests
    return SandboxLimits(
        cpu_s=chosen.tool_cpu_s if is_tool else chosen.cpu_s,
        wall_s=chosen.tool_wall_s if is_tool else chosen.wall_s,
        memory_bytes_max=chosen.memory_bytes_max,
        host_calls_max=chosen.host_calls_max,
        log_bytes_max=chosen.log_bytes_max,
        module_bytes_max=chosen.module_bytes_max,
    )


def _compiled_folder(settings: Settings, env: Mapping[str, str]) -> Path | None:
    return data_directory(env) / "guests" if settings.guests.cache else None


def _add_guest_tools(registry: Registry, quarters: Quarters, module: GuestModule) -> None:
    try:
        for each in ToolGuest(quarters, module).tools():
            registry.add(each)
    except RequestError as error:
        raise ConfigError(f"the guest {module.name!r}: {error.message}", param="guest", hint=error.hint) from None


def _sandbox(section: LocalSection, env: Mapping[str, str]) -> Sandbox:
    rules = SandboxRules(
        level=section.sandbox, network=section.network, env=section.env, read=section.read, write=section.write
    )
    return Sandbox(rules, environ=env)


def _local_tools(section: ToolsSection, sandbox: Sandbox, store: Store) -> list[Tool]:
    """Return the tools on this machine's files and the web that the settings name.

    Raises: ConfigError, also for a shell that nothing would confine.
    """
    local, web = section.local, section.web
    tools: list[Tool] = []
    if local.enabled:
        if "bash" in local.enabled and not local.allow_unconfined and sandbox.found.level == 0:
            raise ConfigError(
                f"bash would run unconfined: {sandbox.found.missing.get('L1', 'the sandbox level is L0')}",
                param="tools.local.enabled",
                hint="take bash out, or set tools.local.allow_unconfined = true",
            )

        async def put(data: bytes, run_id: str) -> str:
            return await store.put_blob(data, run_id=run_id)

        tools += local_tools(
            local.root,
            allow=local.allow,
            names=local.enabled,
            sandbox=sandbox,
            shelf=Shelf(put, store.get_blob),
            is_trusted=local.policy == "trust",
        )
    if web.enabled:
        policy = WebPolicy(
            hosts=web.hosts, ports=web.ports, networks=web.networks, bytes_max=web.bytes_max, timeout_s=web.timeout_s
        )
        tools += web_tools(GuardedClient(policy))
    return tools


def _store(settings: Settings, clock: Clock, env: Mapping[str, str]) -> Store:
    url = settings.store.url
    if settings.store.persistence == "off":
        return open_store(MEMORY, clock=clock.now)
    if is_postgres(url):
        return open_store(url, clock=clock.now, password=env.get(settings.store.password_env, ""))
    path = sqlite_path(url) if url else data_directory(env) / STORE_NAME
    return open_store(str(path), clock=clock.now)


def _secrets(settings: Settings, endpoints: Sequence[Endpoint], env: Mapping[str, str]) -> list[str]:
    """Return what no log may show: keys of upstreams, and the password of the store."""
    keys = [endpoint.key.reveal() for endpoint in endpoints if endpoint.key is not None]
    keys += mcp.secrets_of(settings, env)
    if not is_postgres(settings.store.url):
        return keys
    address = PostgresAddress(settings.store.url, password=env.get(settings.store.password_env, ""))
    return [*keys, *address.secrets]


def _runner_limits(settings: Settings) -> RunnerLimits:
    limits = settings.limits
    return RunnerLimits(
        arguments_bytes_max=limits.arguments_bytes_max,
        output_bytes_max=max(LIMIT_NOTICE_BYTES, limits.max_tool_output_bytes - LIMIT_NOTICE_BYTES),
        stored_bytes_max=limits.stored_bytes_max,
    )


def _runs_options(settings: Settings) -> RunsOptions:
    limits = settings.limits
    return RunsOptions(
        owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        default_model=settings.model,
        persistence=settings.store.persistence == "on",
        limits=Limits(
            max_iterations=limits.max_iterations,
            max_total_tool_calls=limits.max_total_tool_calls,
            identical_repeats_max=limits.identical_repeats_max,
            wall_s=limits.wall_s or None,
            strict_unknown_tool=settings.tools.strict_unknown_tool,
            recovered_effects=settings.repair.effects,
        ),
        offers=OfferRules(
            collision=settings.tools.collision, tools_max=limits.tools_max, tools_bytes_max=limits.tools_bytes_max
        ),
    )
