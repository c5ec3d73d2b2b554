"""Calls a guest's function as a tool: passes arguments, provides an output buffer, retries once with a larger one.

The buffers are in the guest's memory, from its allocator or else from the arena it named. Every result becomes an
outcome for the model; only a guest that had to be stopped raises.
"""

from typing import TYPE_CHECKING

import msgspec

from treadle.core.json import cut_text, write_json
from treadle.core.tool_definitions import Outcome, failure
from treadle.wasm.cchat_abi import OUT_BYTES_FIRST, TOOL, Errno, outcome_of, wants_space
from treadle.wasm.engine.guest_instance import GuestSandbox, Signature

if TYPE_CHECKING:
    from wasmtime import Func

ARGUMENTS_BYTES_MAX = 262_144
ERROR_BYTES_MAX = 512
FAILED = "tool_exec_failed"
TOOL_SIGNATURE = TOOL.signature
_ALLOC = (("i32",), ("i32",))
_ALLOCATORS = ("cchat_alloc", "malloc")
_FREES: dict[str, Signature] = {
    "cchat_free": (("i32", "i32"), ()),
    "free": (("i32",), ()),
}


class Arena(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the guest's memory, reserved for its tools' arguments and output."""

    pointer: int
    length: int


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The memory layout of one call: arguments and NUL, then the output, then its length."""

    base: int
    size: int
    out: int
    capacity: int
    length: int


class _Returned(msgspec.Struct, frozen=True, kw_only=True):
    rc: int
    wanted: int
    room: _Layout


class Caller:
    """Calls the tools of one guest."""

    def __init__(self, sandbox: GuestSandbox, arena: Arena | None = None) -> None:
        self._sandbox = sandbox
        self._arena = arena
        self._alloc = next(filter(None, (sandbox.function(name, _ALLOC) for name in _ALLOCATORS)), None)

    @property
    def has_room(self) -> bool:
        """Return whether the guest has an allocator or an arena for arguments."""
        return self._alloc is not None or self._arena is not None

    def call(self, function: "Func", arguments: str, output_bytes_max: int) -> Outcome:
        """Run the tool, at most twice.

        Raises: GuestStopped.
        """
        try:
            data = arguments.encode() if arguments.strip() else b"{}"
        except UnicodeEncodeError:
            return failure("invalid_arguments", "The arguments are not valid Unicode.")
        if len(data) > ARGUMENTS_BYTES_MAX:
            return failure(
                "too_large", f"The arguments are {len(data)} bytes; at most {ARGUMENTS_BYTES_MAX} are passed."
            )
        capacity = min(OUT_BYTES_FIRST, output_bytes_max)
        returned = self._call_once(function, data, capacity)
        if isinstance(returned, _Returned) and wants_space(returned.rc, returned.wanted, returned.room.capacity):
            self._free(returned.room)
            if returned.wanted > output_bytes_max:
                return failure(
                    "too_large", f"The output needs {returned.wanted} bytes; at most {output_bytes_max} are taken."
                )
            returned = self._call_once(function, data, returned.wanted)
        if isinstance(returned, Outcome):
            return returned
        outcome = self._outcome(returned)
        self._free(returned.room)
        return outcome

    def _call_once(self, function: "Func", data: bytes, capacity: int) -> _Returned | Outcome:
        room = self._allocate(len(data), capacity)
        if room is None:
            return _failed("The guest gave no room for the tool's arguments and output.", "-12")
        sandbox = self._sandbox
        # Clear the start of the buffer: a tool that fails without a message must not show an earlier one.
        blank = bytes(min(room.capacity, ERROR_BYTES_MAX))
        is_written = sandbox.write(room.base, data + b"\0") and sandbox.write(room.out, blank)
        if not (is_written and sandbox.write_u32(room.length, room.capacity)):
            return _failed("The room that the guest gave is outside its memory.", "-14")
        rc = sandbox.call(function, room.base, len(data), room.out, room.length)
        wanted = sandbox.read_u32(room.length)
        return _Returned(rc=rc, wanted=wanted or 0, room=room)

    def _outcome(self, returned: _Returned) -> Outcome:
        room, rc = returned.room, returned.rc
        errno = outcome_of(rc, returned.wanted, room.capacity)
        raw = self._sandbox.read(room.out, min(returned.wanted, room.capacity))
        if rc == 0 and returned.wanted > room.capacity:
            words = f"it says that it wrote {returned.wanted} bytes, where there was room for {room.capacity}"
            return _failed(f"tool rc: 0, but {words}.", str(-Errno.EFAULT))
        if errno is not None or raw is None:
            shown = _error_text(raw) if rc < 0 and returned.wanted <= room.capacity else ""
            number = rc if rc < 0 else -(errno or 14)
            return _failed(f"tool rc: {rc}{': ' if shown else ''}{shown}", str(number))
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            return _failed(f"The output is not UTF-8 at byte {error.start}.", "-84")
        return Outcome(text=text, output_bytes=len(raw))

    def _allocate(self, arguments_bytes: int, capacity: int) -> _Layout | None:
        """Allocate the layout of one call; in an arena the output gets the remaining space, up to the capacity."""
        out_at = (arguments_bytes + 1 + 7) & ~7
        if self._alloc is not None:
            length_at = (out_at + capacity + 3) & ~3
            size = length_at + 4
            base = self._sandbox.call(self._alloc, size) & 0xFFFFFFFF
            if base == 0 or self._sandbox.read(base + size - 1, 1) is None or base + size > 0xFFFFFFFF:
                return None
            return _Layout(base=base, size=size, out=base + out_at, capacity=capacity, length=base + length_at)
        if self._arena is None:
            return None
        capacity = min(capacity, (self._arena.length - out_at - 4) & ~3)
        if capacity <= 0:
            return None
        base = self._arena.pointer
        length_at = (out_at + capacity + 3) & ~3
        if length_at + 4 > self._arena.length:
            return None
        return _Layout(base=base, size=0, out=base + out_at, capacity=capacity, length=base + length_at)

    def _free(self, room: _Layout) -> None:
        if self._alloc is None:
            return
        for name, signature in _FREES.items():
            free = self._sandbox.function(name, signature)
            if free is not None:
                self._sandbox.do(free, *(room.base, room.size)[: len(signature[0])])
                return


def _failed(message: str, rc: str) -> Outcome:
    text = write_json({"error": {"code": FAILED, "message": message}}).decode()
    return Outcome(text=text, rc=rc, summary=message)


def _error_text(raw: bytes | None) -> str:
    """Return a failed tool's message, up to its terminating NUL."""
    message = (raw or b"")[:ERROR_BYTES_MAX].partition(b"\0")[0]
    return cut_text(message.decode("utf-8", "replace"), ERROR_BYTES_MAX)
