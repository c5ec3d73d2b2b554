"""Builds the tools from the settings: functions, local and web tools, and WASM guests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from treadle.config import LocalSection, Settings, ToolsSection
from treadle.config.loader import data_directory
from treadle.config.mcp_settings import PINS_NAME, own_paths
from treadle.config.settings import Guest
from treadle.core.errors import ConfigError, RequestError
from treadle.journal.journal_interface import Store
from treadle.journal.store_url import is_postgres
from treadle.runtime.policy_setup import make_policies
from treadle.tools import Tool, ToolRegistry
from treadle.tools.blocked_ports import OwnPorts
from treadle.tools.local import LocalCaps, OutputStore, Piece, local_tools
from treadle.tools.local.safe_open import Root
from treadle.tools.sandbox import CommandSandbox, FoundLevel, network_gap
from treadle.tools.sandbox import SandboxRules as SandboxRules
from treadle.tools.tool_loading import load
from treadle.wasm.engine.guest_limits import SandboxLimits
from treadle.wasm.engine.wasi_grants import GrantWords, WasiGrant, read_grant
from treadle.wasm.guest_pool import GuestModule, GuestPool
from treadle.wasm.tool_modules import ToolGuest

LEVEL_OF_MASKS = 3


def make_registry(settings: Settings, given: Sequence[Tool], demo: Sequence[Tool]) -> ToolRegistry:
    """Return the server tools: the given ones and those of the settings; without any, the demo tools."""
    chosen = settings.tools
    registry = ToolRegistry(enabled=("*",) if chosen.enabled else (), policies=make_policies(settings))
    own = [*given, *(loaded for place in chosen.load for loaded in load(place))]
    for each in own or demo:
        registry.add(each)
    return registry


def make_sandbox(
    section: LocalSection, env: Mapping[str, str], own_ports: OwnPorts, hidden: Sequence[str]
) -> CommandSandbox:
    """Return the sandbox for the commands of local tools."""
    rules = SandboxRules(
        level=section.sandbox, network=section.network, env=section.env, read=section.read, write=section.write
    )
    return CommandSandbox(rules, environ=env, closed=own_ports.closed, hidden=hidden)


def make_local_tools(
    section: ToolsSection, sandbox: CommandSandbox, store: Store, own_ports: OwnPorts, hidden: Sequence[str] = ()
) -> list[Tool]:
    """Return the local and web tools that the settings enable.

    Raises: ConfigError, also for a shell without a sandbox.
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

        if "bash" in local.enabled and sandbox.found.level:
            _check_isolated_from_treadle(local, sandbox.found, hidden)

        async def put(data: bytes, run_id: str) -> str:
            return await store.put_blob(data, run_id=run_id)

        async def get(piece: Piece, run_id: str) -> bytes:
            return await store.get_blob(*piece, run_id=run_id)

        tools += local_tools(
            Root(local.root, allow=local.allow, hidden=_journal_names(store), writable=local.writable),
            names=local.enabled,
            sandbox=sandbox,
            shelf=OutputStore(put, get),
            is_trusted=local.policy == "trust",
            caps=LocalCaps(**{name: getattr(local, name) for name in LocalCaps.__struct_fields__}),
        )
    if web.enabled:
        # Imported late: it loads an HTTP client and TLS, which few installations need.
        from treadle.tools.web import GuardedClient, web_tools
        from treadle.tools.web import WebPolicy as WebPolicy

        policy = WebPolicy(
            hosts=web.hosts, ports=web.ports, networks=web.networks, bytes_max=web.bytes_max, timeout_s=web.timeout_s
        )
        tools += web_tools(GuardedClient(policy, own_ports=own_ports))
    return tools


def _check_isolated_from_treadle(local: LocalSection, found: FoundLevel, hidden: Sequence[str]) -> None:
    """Check that commands cannot reach Treadle itself: writing the journal or calling the server means approving.

    Raises: ConfigError.
    """
    gap = network_gap(found.level, found.abi) if local.network else None
    if gap is not None:
        raise ConfigError(
            f"commands can have no network here: {gap}",
            param="tools.local.network",
            hint="take tools.local.network out, or run on a newer kernel; `treadle doctor` shows what there is",
        )
    folders = [Path(each).expanduser().resolve() for each in (local.root, *local.read, *local.write)]
    for path in map(Path, hidden) if found.level < LEVEL_OF_MASKS else ():
        if any(path.resolve().is_relative_to(folder) for folder in folders):
            raise ConfigError(
                f"commands could read and write {path}, which is Treadle's own",
                param="tools.local.root",
                hint=f"keep the journal elsewhere (store.url); at {found.name} nothing in a folder can be hidden",
            )


def _journal_names(store: Store) -> tuple[str, ...]:
    """Return glob patterns of the journal's files, which tools must not open; none if it is not a file."""
    if is_postgres(store.path):
        return ()
    name = "".join(f"[{each}]" if each in "*?[" else each for each in Path(store.path).name.casefold())
    return (name, f"{name}-*", PINS_NAME)


def guest_modules(settings: Settings, env: Mapping[str, str]) -> list[GuestModule]:
    """Return the configured WASM guests with their limits. Raises: ConfigError."""
    own = own_paths(settings, env)
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
            wasi=_guest_grant(guest, env, own),
            effect=guest.effect,
            approval=guest.approval,
            schema=guest.schema,
        )
        for guest in settings.guest
    ]


def _check_granted(grant: WasiGrant | None, hidden: Sequence[str]) -> None:
    """Refuse a folder that contains Treadle's own files or is inside one of their folders.

    Raises: ConfigError.
    """
    for folder in () if grant is None else grant.folders:
        host = Path(folder.host).resolve()
        for own in (Path(each).resolve() for each in hidden):
            if own.is_relative_to(host) or host.is_relative_to(own):
                raise ConfigError(
                    f"{folder.host} holds {own}, which is Treadle's own",
                    param="wasi_write" if folder.is_writable else "wasi_read",
                    hint="grant a folder beside it",
                )


def _guest_grant(guest: Guest, env: Mapping[str, str], hidden: Sequence[str]) -> WasiGrant | None:
    words = GrantWords(read=guest.wasi_read, write=guest.wasi_write, env=guest.wasi_env, args=guest.wasi_args)
    try:
        grant = read_grant(words, env)
        _check_granted(grant, hidden)
        return grant
    except ConfigError as error:
        raise ConfigError(f"the guest {guest.name!r}: {error.message}", param=error.param, hint=error.hint) from None


def guest_limits(settings: Settings, *, is_tool: bool) -> SandboxLimits:
    """Return the limits of one WASM guest."""
    chosen = settings.guests
    return SandboxLimits(
        cpu_s=chosen.tool_cpu_s if is_tool else chosen.cpu_s,
        wall_s=chosen.tool_wall_s if is_tool else chosen.wall_s,
        memory_bytes_max=chosen.memory_bytes_max,
        host_calls_max=chosen.host_calls_max,
        log_bytes_max=chosen.log_bytes_max,
        module_bytes_max=chosen.module_bytes_max,
    )


def compiled_folder(settings: Settings, env: Mapping[str, str]) -> Path | None:
    """Return the folder of the compiled guest cache; None if it is off."""
    return data_directory(env) / "guests" if settings.guests.cache else None


def add_guest_tools(registry: ToolRegistry, pool: GuestPool, module: GuestModule) -> None:
    """Add the tools of a WASM guest. Raises: ConfigError."""
    try:
        for each in ToolGuest(pool, module).tools():
            registry.add(each)
    except RequestError as error:
        raise ConfigError(f"the guest {module.name!r}: {error.message}", param="guest", hint=error.hint) from None
