"""Functions that wasmtime's Python classes lack, written on its C bindings: host functions that can end their guest, a
check of each guest at every clock tick, and fast calls of integer functions.

wasmtime's classes store the last exception of a host function in one global variable, so two guests that fail at the
same moment get each other's. Here no exception leaves a host function; the guest is stopped by a trap.
"""

import ctypes
import functools
import importlib
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.core.errors import TreadleError

if TYPE_CHECKING:
    from wasmtime import Func, Module, Store

log = logging.getLogger("treadle.wasm")

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
"""Exceptions that a bug in a host function can raise; none of them may reach wasmtime."""

Signature = tuple[tuple[str, ...], tuple[str, ...]]
"""The types of a function's parameters and results."""
_I32, _I64 = 0, 1
_STOPPED = b"stopped by the host"


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """An import of a module: its two names, the engine's type, and the signature if it is a function."""

    module: str
    name: str
    kind: Any = None
    signature: Signature | None = None


_needed: "weakref.WeakKeyDictionary[Module, tuple[Needed, ...]]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def needs_of(module: "Module") -> tuple[Needed, ...]:
    """Return a module's imports; cached per module, since the query takes longer than instantiation."""
    with _lock:
        found = _needed.get(module)
    if found is None:
        found = tuple(_need(each) for each in module.imports)
        with _lock:
            _needed[module] = found
    return found


def _need(each: Any) -> Needed:
    kind = each.type
    is_function = type(kind).__name__ == "FuncType"
    signature = signature_of(kind) if is_function else None
    return Needed(module=str(each.module), name=str(each.name), kind=kind, signature=signature)


def signature_of(kind: Any) -> Signature:
    """Return the signature of a function type."""
    return tuple(str(each) for each in kind.params), tuple(str(each) for each in kind.results)


@functools.cache
def _ffi() -> Any:
    return importlib.import_module("wasmtime._ffi")


def host_function(
    store: "Store", needed: Needed, function: Callable[..., int], *, ends: Callable[[BaseException | None], bool]
) -> "tuple[Func, object]":
    """Create a host function; after each call `ends` gets the exception, if any, and returns whether to end the guest.

    The second value must be referenced while the guest lives: ctypes frees the callback with its last reference.
    """
    ffi = _ffi()
    results = needed.signature[1] if needed.signature else ()
    result_kind = _I64 if results == ("i64",) else _I32

    def called(_env: Any, _caller: Any, params: Any, count: int, out: Any, _results: int) -> int:
        raised: BaseException | None = None
        try:
            value = function(*_read(params, count))
            if results:
                _write(out, value, result_kind)
        except HOST_FAULTS as error:
            log.exception("a host function failed")
            raised = error
        return _trap(ffi) if ends(raised) else 0

    callback = ffi.wasmtime_func_callback_t(called)
    raw = ffi.wasmtime_func_t()
    no_finalizer = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
    context = store._context()  # pyright: ignore[reportPrivateUsage]
    ffi.wasmtime_func_new(context, needed.kind.ptr(), callback, None, no_finalizer, ctypes.byref(raw))
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


def call(store: "Store", function: "Func", arguments: Sequence[int], *, has_result: bool) -> int | None:
    """Call a guest function that takes 32-bit integers and returns one or nothing, without a lookup of its type.

    Raises: wasmtime.Trap, wasmtime.WasmtimeError.
    """
    ffi = _ffi()
    params = (ffi.wasmtime_val_t * len(arguments))()
    for place, value in enumerate(arguments):
        params[place].kind = _I32
        params[place].of.i32 = value
    results = (ffi.wasmtime_val_t * has_result)()
    pointer: Any = ctypes.POINTER
    trap: Any = pointer(ffi.wasm_trap_t)()
    context = store._context()  # pyright: ignore[reportPrivateUsage]
    raw = ctypes.byref(function._func)  # pyright: ignore[reportPrivateUsage]
    error = ffi.wasmtime_func_call(context, raw, params, len(arguments), results, has_result, ctypes.byref(trap))
    if error or trap:
        wasmtime = importlib.import_module("wasmtime")
        raise wasmtime.WasmtimeError._from_ptr(error) if error else wasmtime.Trap._from_ptr(trap)
    return results[0].of.i32 if has_result else None


def watch(store: "Store", must_stop: Callable[[], bool]) -> object:
    """Check at every tick whether a store's guest must stop; reference the returned value as long as the store."""
    ffi = _ffi()
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
