"""The two things that wasmtime's Python classes lack, on its bindings: host functions that can end their own guest,
and asking one guest, at a tick of the clock, whether it has to stop.

The classes keep the last exception of a host function in one variable of the process, so that two guests failing at
the same moment get each other's. Here an exception never leaves the host function; the guest is stopped by a trap.
"""

import ctypes
import importlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.canon.errors import TreadleError

if TYPE_CHECKING:
    from wasmtime import Func, FuncType, Store

log = logging.getLogger("treadle.guests")

HOST_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    TreadleError,
)
"""What a host function can raise by a mistake of its own; none of it may reach wasmtime."""

_I32, _I64 = 0, 1
_STOPPED = b"stopped by the host"


def host_function(
    store: "Store", kind: "FuncType", function: Callable[..., int], *, ends: Callable[[BaseException | None], bool]
) -> "tuple[Func, object]":
    """Make a host function; `ends` says after each call whether the guest ends here, and hears of what was raised.

    The second value must be kept for as long as the guest lives.
    """
    ffi: Any = importlib.import_module("wasmtime._ffi")
    has_result = bool(kind.results)

    def called(_env: Any, _caller: Any, params: Any, count: int, results: Any, _results: int) -> int:
        raised: BaseException | None = None
        try:
            value = function(*_read(params, count))
            if has_result:
                _write(results, value, kinds[0])
        except HOST_FAULTS as error:
            log.exception("a host function failed")
            raised = error
        return _trap(ffi) if ends(raised) else 0

    kinds = [_I64 if str(result) == "i64" else _I32 for result in kind.results]
    callback = ffi.wasmtime_func_callback_t(called)
    raw = ffi.wasmtime_func_t()
    no_finalizer = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
    context = store._context()  # pyright: ignore[reportPrivateUsage]
    ffi.wasmtime_func_new(context, kind.ptr(), callback, None, no_finalizer, ctypes.byref(raw))
    return importlib.import_module("wasmtime").Func._from_raw(raw), callback


def _read(params: Any, count: int) -> Sequence[int]:
    return [params[place].of.i64 if params[place].kind == _I64 else params[place].of.i32 for place in range(count)]


def _write(results: Any, value: int, kind: int) -> None:
    results[0].kind = kind
    if kind == _I64:
        results[0].of.i64 = value
    else:
        results[0].of.i32 = value


def _trap(ffi: Any) -> int:
    trap = ffi.wasmtime_trap_new(ctypes.create_string_buffer(_STOPPED), len(_STOPPED))
    return ctypes.cast(trap, ctypes.c_void_p).value or 0


def watch(store: "Store", must_stop: Callable[[], bool]) -> object:
    """Ask the guest of a store at every tick whether it must stop; the returned value must be kept as long as it."""
    ffi: Any = importlib.import_module("wasmtime._ffi")
    bindings: Any = importlib.import_module("wasmtime._bindings")
    _, kind, _, finalizer_kind = bindings._wasmtime_store_epoch_deadline_callback.argtypes

    def ticked(_context: Any, _data: Any, delta: Any, _kind: Any) -> int:
        if must_stop():
            error = ffi.wasmtime_error_new(ctypes.create_string_buffer(_STOPPED))
            return ctypes.cast(error, ctypes.c_void_p).value or 0
        delta[0] = 1
        return 0

    callback = kind(ticked)
    bindings.wasmtime_store_epoch_deadline_callback(store.ptr(), callback, None, ctypes.cast(0, finalizer_kind))
    return callback
