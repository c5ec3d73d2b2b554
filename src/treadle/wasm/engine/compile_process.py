"""The child process that compiles guests, run by `python -m`: reads a header and a module, writes compiled code.

Compilation cannot be interrupted, and a small module can take minutes and gigabytes; resource limits of the operating
system end the process.
"""

import contextlib
import sys

import msgspec

from treadle.wasm.engine.wasmtime_engine import EngineSpec, engine_of, load_wasmtime

REFUSED = 3
FILE_BYTES_MAX = 268_435_456
"""Not zero: wasmtime stores a module's initial memory in an anonymous file."""
COMPONENT = b"\x00asm\x0d\x00\x01\x00"
CORE = b"\x00asm\x01\x00\x00\x00"


class CompileOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The engine settings and the limits of one compilation."""

    spec: EngineSpec
    address_bytes_max: int
    cpu_s: int


class CompileRefused(Exception):
    """The bytes are not WASM that this engine accepts; the message is the reason."""


def compile_code(wasm: bytes, spec: EngineSpec) -> bytes:
    """Compile a module or a component.

    Raises: CompileRefused.
    """
    wasmtime = load_wasmtime()
    if wasm[:8] not in (CORE, COMPONENT):
        raise CompileRefused("not a WASM module or component: its first bytes are others")
    from wasmtime.component import Component

    is_component = wasm[:8] == COMPONENT
    kind = Component if is_component else wasmtime.Module
    try:
        return bytes(kind(engine_of(spec.of(is_component=is_component)), wasm).serialize())
    except wasmtime.WasmtimeError as error:
        words = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise CompileRefused(words[-1] if words else "it cannot be compiled") from None


def bound_process(address_bytes_max: int, cpu_s: int | None) -> None:
    """Set resource limits for this process, where the system supports them."""
    try:
        import resource
    except ImportError:
        return
    bounds = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, address_bytes_max),
        *([] if cpu_s is None else [(resource.RLIMIT_CPU, cpu_s)]),
        (resource.RLIMIT_FSIZE, FILE_BYTES_MAX),
    ]
    for which, value in bounds:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (value, value))


def main() -> int:
    """Compile the module on standard input."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=CompileOrder)
    bound_process(order.address_bytes_max, order.cpu_s)
    try:
        code = compile_code(sys.stdin.buffer.read(), order.spec)
    except CompileRefused as error:
        sys.stderr.write(str(error))
        return REFUSED
    sys.stdout.buffer.write(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
