"""Runs a WASM session guest for a client, and describes configured guests: the only WASM code that the server uses."""

from collections.abc import Sequence

import msgspec

from treadle.wasm.engine.guest_limits import Stop
from treadle.wasm.engine.wasi_grants import WasiGrant
from treadle.wasm.execution.conversation_runs import Admit, Sender
from treadle.wasm.execution.session_program import ProgramEnded
from treadle.wasm.execution.thread_messages import LEVELS, GuestOutput
from treadle.wasm.guest_pool import GuestModule
from treadle.wasm.guest_service import Guests


class FolderView(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that a guest may use, by its path inside the guest."""

    path: str
    is_writable: bool


class GuestView(msgspec.Struct, frozen=True, kw_only=True):
    """A configured guest: its isolation, grants and limits."""

    name: str
    model: str
    isolation: str
    engine: str
    grants: tuple[str, ...]
    folders: list[FolderView]
    env: list[str]
    cpu_s: float
    wall_s: float
    memory_bytes_max: int


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the guest logged."""

    level: str
    text: str


class GuestRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a guest ended, what it printed and logged, and the runs that it made."""

    guest: str
    status: str
    exit_code: int | None
    stop: Stop | None
    output: str
    errors: str
    log: list[LogLine]
    runs: tuple[str, ...]
    cpu_s: float
    wall_s: float
    host_calls: int


def describe_guest(module: GuestModule) -> GuestView:
    """Return what clients may see of a guest: no host paths, and no values of environment variables."""
    wasi = module.wasi or WasiGrant()
    return GuestView(
        name=module.name,
        model=module.model,
        isolation=module.isolation,
        engine=module.engine,
        grants=module.grants,
        folders=[FolderView(path=folder.guest, is_writable=folder.is_writable) for folder in wasi.folders],
        env=[name for name, _ in wasi.env],
        cpu_s=module.limits.cpu_s,
        wall_s=module.limits.wall_s,
        memory_bytes_max=module.limits.memory_bytes_max,
    )


async def run_guest(
    guests: Guests, module: GuestModule, *, stdin: bytes, key_id: str, allowed: tuple[str, ...] | None, admit: Admit
) -> GuestRun:
    """Run a guest for a client until it ends; cancelling stops it.

    Raises: BadGuest, TooManyGuests, ConfigError.
    """
    messages: list[GuestOutput] = []
    sender = Sender(key_id=key_id, allowed=allowed, admit=admit)
    ended = await guests.run(module, stdin=stdin, on_output=messages.append, sender=sender)
    return _view(module, ended, messages)


def _view(module: GuestModule, ended: ProgramEnded, messages: Sequence[GuestOutput]) -> GuestRun:
    return GuestRun(
        guest=module.name,
        status="completed" if ended.stop is None else "stopped",
        exit_code=ended.exit_code,
        stop=ended.stop,
        output="".join(each.text for each in messages if each.stream == "stdout"),
        errors="".join(each.text for each in messages if each.stream == "stderr"),
        log=[LogLine(level=LEVELS[each.level], text=each.text) for each in messages if each.stream == "log"],
        runs=ended.run_ids,
        cpu_s=ended.cpu_s,
        wall_s=ended.wall_s,
        host_calls=ended.host_calls,
    )
