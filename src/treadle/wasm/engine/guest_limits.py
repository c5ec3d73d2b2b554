"""The resource limits of a guest, and the codes of its ends. Does not import the engine."""

from typing import Literal

import msgspec

StopCode = Literal["trap", "timeout", "cancelled", "quota", "exit", "memory", "link", "invalid", "crash"]
"""Why a guest was stopped: a closed list, since it is a metric label.

`trap`: it did what WASM forbids; `timeout`: its CPU or wall time is used up; `quota`: too many calls or log bytes;
`exit`: it ended itself; `memory`: it does not fit; `link`: an import does not exist; `invalid`: it is not a guest;
`crash`: its process died.
"""

EngineMode = Literal["safe", "fast"]
"""`fast` detects out-of-bounds accesses by signals, which other code of the process may interfere with."""

Isolation = Literal["thread", "process"]
PAGE_BYTES = 65_536


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one guest. CPU time excludes waiting for a model."""

    cpu_s: float = 10.0
    wall_s: float = 300.0
    memory_bytes_max: int = 67_108_864
    table_elements_max: int = 10_000
    host_calls_max: int = 100_000
    log_line_bytes_max: int = 16_384
    log_bytes_max: int = 262_144
    fds_max: int = 64
    messages_max: int = 1_000
    text_bytes_max: int = 4_194_304
    module_bytes_max: int = 8_388_608


SESSION_LIMITS = SandboxLimits()
COMPONENT_BYTES_MAX = 67_108_864


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Why a guest ended before its function returned."""

    code: StopCode
    message: str
    exit_code: int | None = None


class GuestStopped(Exception):
    """The guest was stopped and must not be called again."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.message)
        self.stop = stop
