"""WASI for guests without grants: enough for a C, Rust or Go runtime to start, print and exit.

Standard output and error go to the guest's log, standard input is given by the host, clocks and random numbers are
real. Calls for files, sockets, arguments, environment and sleep return an error.
"""

import secrets
import time
from collections.abc import Callable
from typing import Protocol

from treadle.wasm.engine.guest_instance import GuestSandbox, HostFunction

MODULES = frozenset({"wasi_snapshot_preview1", "wasi_unstable"})
STDIN, STDOUT, STDERR = 0, 1, 2
SUCCESS, BADF, FAULT, INVAL, NOSYS, SPIPE = 0, 8, 21, 28, 52, 70
VECTORS_MAX = 1_024
RANDOM_BYTES_MAX = 65_536
_CHARACTER_DEVICE = 2
_CLOCKS: dict[int, Callable[[], int]] = {0: time.time_ns, 1: time.monotonic_ns, 2: time.thread_time_ns}


class Output(Protocol):
    """Receives a guest's output."""

    def print(self, fd: int, data: bytes) -> None:
        """Handle text written to standard output (1) or error (2)."""
        ...


class Wasi:
    """The WASI calls of one guest."""

    def __init__(self, sandbox: GuestSandbox, output: Output, stdin: bytes = b"") -> None:
        self._sandbox = sandbox
        self._output = output
        self._stdin = stdin

    def stub(self, name: str) -> HostFunction:
        """Return the implementation of a WASI import; an unsupported one returns an error code."""
        return getattr(self, f"_{name}", _not_there)

    def _args_sizes_get(self, count: int, size: int) -> int:
        return self._put(count, 0) or self._put(size, 0)

    def _environ_sizes_get(self, count: int, size: int) -> int:
        return self._put(count, 0) or self._put(size, 0)

    def _args_get(self, _values: int, _buffer: int) -> int:
        return SUCCESS

    def _environ_get(self, _values: int, _buffer: int) -> int:
        return SUCCESS

    def _clock_time_get(self, clock: int, _precision: int, out: int) -> int:
        read = _CLOCKS.get(clock)
        if read is None:
            return INVAL
        return SUCCESS if self._sandbox.write(out, read().to_bytes(8, "little")) else FAULT

    def _clock_res_get(self, clock: int, out: int) -> int:
        if clock not in _CLOCKS:
            return INVAL
        return SUCCESS if self._sandbox.write(out, (1_000).to_bytes(8, "little")) else FAULT

    def _random_get(self, pointer: int, length: int) -> int:
        length &= 0xFFFFFFFF
        if length > RANDOM_BYTES_MAX:
            return INVAL
        return SUCCESS if self._sandbox.write(pointer, secrets.token_bytes(length)) else FAULT

    def _fd_write(self, fd: int, vectors: int, count: int, written: int) -> int:
        if fd not in (STDOUT, STDERR):
            return BADF
        pieces: list[bytes] = []
        size = 0
        for pointer, length in self._vectors(vectors, count) or ():
            size += length
            piece = self._sandbox.read(pointer, length) if size <= self._print_max else None
            if piece is None:
                return FAULT if size <= self._print_max else INVAL
            pieces.append(piece)
        if count and not pieces:
            return FAULT
        data = b"".join(pieces)
        self._output.print(fd, data)
        return self._put(written, len(data))

    def _fd_read(self, fd: int, vectors: int, count: int, read: int) -> int:
        if fd != STDIN:
            return BADF
        ranges = self._vectors(vectors, count)
        if ranges is None:
            return FAULT
        size = 0
        for pointer, length in ranges:
            piece = self._stdin[:length]
            if not self._sandbox.write(pointer, piece):
                return FAULT
            self._stdin = self._stdin[len(piece) :]
            size += len(piece)
        return self._put(read, size)

    def _fd_close(self, fd: int) -> int:
        return SUCCESS if fd in (STDIN, STDOUT, STDERR) else BADF

    def _fd_seek(self, fd: int, _offset: int, _whence: int, _out: int) -> int:
        return SPIPE if fd in (STDIN, STDOUT, STDERR) else BADF

    def _fd_fdstat_get(self, fd: int, out: int) -> int:
        if fd not in (STDIN, STDOUT, STDERR):
            return BADF
        status = bytes([_CHARACTER_DEVICE]) + bytes(23)
        return SUCCESS if self._sandbox.write(out, status) else FAULT

    def _fd_fdstat_set_flags(self, fd: int, _flags: int) -> int:
        return SUCCESS if fd in (STDIN, STDOUT, STDERR) else BADF

    def _fd_prestat_get(self, _fd: int, _out: int) -> int:
        return BADF

    def _fd_prestat_dir_name(self, _fd: int, _pointer: int, _length: int) -> int:
        return BADF

    def _sched_yield(self) -> int:
        return SUCCESS

    def _proc_exit(self, code: int) -> int:
        self._sandbox.control.end("exit", f"The guest ended itself with code {code}.", exit_code=code)
        return SUCCESS

    def _put(self, pointer: int, value: int) -> int:
        return SUCCESS if self._sandbox.write_u32(pointer, value) else FAULT

    @property
    def _print_max(self) -> int:
        return self._sandbox.control.limits.log_bytes_max

    def _vectors(self, pointer: int, count: int) -> list[tuple[int, int]] | None:
        count &= 0xFFFFFFFF
        raw = self._sandbox.read(pointer, 8 * count) if count <= VECTORS_MAX else None
        if raw is None:
            return None
        numbers = [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]
        return list(zip(numbers[::2], numbers[1::2], strict=True))


def _not_there(*_: int) -> int:
    return NOSYS
