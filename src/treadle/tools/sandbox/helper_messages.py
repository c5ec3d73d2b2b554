"""How a helper process is started, what it is asked to run, and how that ended: as JSON. Standard library only."""

import dataclasses
import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any, Literal

HEAD = struct.Struct("=I")
MESSAGE_BYTES_MAX = 16_777_216
PIECE_BYTES = 65_536
_TOP = Path(__file__).resolve().parents[2]
_SOURCE = """
import sys, types
for name, place in {places}:
    package = types.ModuleType(name)
    package.__path__ = [place]
    sys.modules[name] = package
sys.path[:0] = {extra}
import importlib
importlib.import_module({module!r}).main()
"""

Ending = Literal["exited", "timeout", "cancelled", "processes", "memory", "refused"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandOrder:
    """One command and what it may reach.

    `read` and `write` are folders and files; `fixed` are read-only and `masked` unreadable although they lie in one
    that may be written. The last two need a mount namespace, as `scratch` does to be seen as /tmp, and `pinned`, which
    may be written and not be moved. In the folders of `guard` nothing protected changes, but what a person `allowed`
    by its path; with `git` repositories may be written, except what makes git run something. With a `network` there
    must be `net_rules`, the descriptor of a Landlock ruleset that says which ports may be reached: it comes beside the
    order and its number is known only where it arrived.

    `read_only` takes away what the folders alone do not: times, modes and attributes of files, signals to others,
    every network, devices that do more than give bytes. `write` then holds nothing but scratch space of this one
    command, and those of its folders that are also in `vanishing` are memory where there is a mount namespace.
    In `listed` only the names of files can be read, and `parts` are what can be read of them: no link counts there.
    """

    argv: list[str]
    cwd: str
    env: dict[str, str]
    level: int = 0
    abi: int = 0
    read: list[str] = dataclasses.field(default_factory=list[str])
    write: list[str] = dataclasses.field(default_factory=list[str])
    fixed: list[str] = dataclasses.field(default_factory=list[str])
    masked: list[str] = dataclasses.field(default_factory=list[str])
    pinned: list[str] = dataclasses.field(default_factory=list[str])
    guard: list[str] = dataclasses.field(default_factory=list[str])
    allowed: list[str] = dataclasses.field(default_factory=list[str])
    git: bool = False
    scratch: str = ""
    network: bool = False
    read_only: bool = False
    listed: list[str] = dataclasses.field(default_factory=list[str])
    parts: list[str] = dataclasses.field(default_factory=list[str])
    vanishing: list[str] = dataclasses.field(default_factory=list[str])
    net_rules: int = -1
    timeout_s: float = 120.0
    term_s: float = 2.0
    cpu_s: int = 240
    processes_max: int = 512
    memory_bytes_max: int = 4_294_967_296
    file_bytes_max: int = 1_073_741_824


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandEnded:
    """How a command ended. `code` is its exit status, 128 and the signal's number when one killed it.

    `undone` says what of it was moved aside or put back, because it changed what is protected.
    """

    ending: Ending
    code: int = 0
    leftovers: int = 0
    message: str = ""
    undone: list[str] = dataclasses.field(default_factory=list[str])


def bare_command(module: str, *, extra: tuple[str, ...] = ()) -> list[str]:
    """Return the command that runs `main` of a module in a bare interpreter.

    Its packages are left empty, so that nothing else of Treadle is imported; `extra` are folders to import from.
    """
    parts = module.split(".")[:-1]
    places = [[".".join(parts[: depth + 1]), str(_TOP.joinpath(*parts[1 : depth + 1]))] for depth in range(len(parts))]
    source = _SOURCE.format(places=json.dumps(places), extra=json.dumps(extra), module=module)
    return [sys.executable, "-I", "-S", "-c", source]


def send(to: socket.socket, value: CommandOrder | CommandEnded) -> None:
    """Write one message.

    Raises: OSError.
    """
    data = json.dumps(dataclasses.asdict(value)).encode()
    to.sendall(HEAD.pack(len(data)) + data)


def read(source: socket.socket) -> dict[str, Any]:
    """Read one message.

    Raises: EOFError, when the other side is gone; ValueError, when it is none.
    """
    size = HEAD.unpack(_exactly(source, HEAD.size))[0]
    if size > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {size} bytes")
    return json.loads(_exactly(source, size))


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(min(PIECE_BYTES, size - len(data)))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
