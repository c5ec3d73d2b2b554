"""The real WASI for one guest, as granted by the operator: folders, environment variables, arguments.

A guest without a grant has the stubs of `minimal_wasi`. One with a grant runs in a separate process, because the
engine's file calls and sleeps cannot be interrupted. A folder is read-only unless granted for writing; nothing outside
it can be reached, neither by `..` nor by a link.
"""

import ctypes
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.wasm.engine.guest_limits import Isolation
from treadle.wasm.engine.wasmtime_engine import load_wasmtime

if TYPE_CHECKING:
    from wasmtime import Store

MODULE = "wasi_snapshot_preview1"
STUBBED = frozenset({"proc_exit", "clock_time_get", "clock_res_get", "random_get", "sched_yield"})
"""Calls that still use the stubs: they end the guest, or need nothing from the system."""
FOLDERS_MAX = 16

Print = Callable[[int, bytes], None]


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the host, and its path in the guest."""

    host: str
    guest: str
    is_writable: bool = False


class WasiGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A guest's access to the real WASI."""

    folders: tuple[Folder, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ()


class GrantWords(msgspec.Struct, frozen=True, kw_only=True):
    """A grant in the notation of the configuration: folders as HOST or HOST:GUEST, variables by name."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    args: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.read or self.write or self.env or self.args)


def read_grant(words: GrantWords, environ: Mapping[str, str]) -> WasiGrant | None:
    """Parse a grant; None when nothing is granted. Unset variables are skipped.

    Raises: ConfigError, naming the key.
    """
    if not words:
        return None
    folders = [*_folders("wasi_read", words.read, False), *_folders("wasi_write", words.write, True)]
    if len(folders) > FOLDERS_MAX:
        raise _wrong("wasi_read", f"at most {FOLDERS_MAX} folders can be granted, not {len(folders)}")
    seen: set[str] = set()
    for folder in folders:
        if folder.guest in seen:
            raise _wrong("wasi_read", f"two folders are to be {folder.guest} for the guest")
        seen.add(folder.guest)
    for name in words.env:
        if not name or "=" in name or "\0" in name:
            raise _wrong("wasi_env", f"{name!r} is not the name of a variable")
    env = tuple((name, environ[name]) for name in dict.fromkeys(words.env) if name in environ)
    return WasiGrant(folders=tuple(folders), env=env, args=words.args)


def check_place(grant: WasiGrant | None, isolation: Isolation) -> None:
    """Refuse a grant for a guest without a separate process.

    Raises: ConfigError.
    """
    if grant is not None and isolation != "process":
        raise ConfigError(
            "A guest with folders, variables or arguments of its own must run in a process of its own.",
            param="isolation",
            hint='isolation = "process"',
        )


def _folders(key: str, texts: Sequence[str], is_writable: bool) -> list[Folder]:
    return [_folder(key, text, is_writable) for text in texts]


def _folder(key: str, text: str, is_writable: bool) -> Folder:
    """Parse HOST or HOST:GUEST; without GUEST the folder appears under its name at the root."""
    host_text, separator, guest = text.rpartition(":/")
    host = Path(host_text if separator else text).expanduser()
    guest = f"/{guest}" if separator else f"/{host.resolve().name}"
    if ".." in PurePosixPath(guest).parts or "\0" in text:
        raise _wrong(key, f"{guest!r} cannot be the guest's name of a folder")
    if not host.is_dir():
        raise _wrong(key, f"there is no folder {host}")
    return Folder(host=str(host.resolve()), guest=str(PurePosixPath(guest)), is_writable=is_writable)


def _wrong(key: str, message: str) -> ConfigError:
    return ConfigError(f"{key}: {message}", param=key, hint='a folder is "HOST" or "HOST:/GUEST"')


class WasiAccess:
    """The real WASI of one guest. Use it only in a separate process."""

    def __init__(self, grant: WasiGrant, output: Print, stdin: bytes = b"") -> None:
        self._grant = grant
        self._print = output
        self._stdin = stdin
        self._linker: Any = None

    def attach(self, store: "Store") -> None:
        """Configure a store with the grant.

        Raises: WasmtimeError, when a folder no longer exists.
        """
        wasmtime = load_wasmtime()
        config = wasmtime.WasiConfig()
        config.argv = list(self._grant.args)
        config.env = list(self._grant.env)
        for folder in self._grant.folders:
            config.preopen_dir(folder.host, folder.guest, fs_mutable=folder.is_writable)
        config.stdout_custom = self._printer(1)
        config.stderr_custom = self._printer(2)
        _set_stdin(config, self._stdin)
        store.set_wasi(config)

    def extern(self, store: "Store", module: str, name: str) -> Any | None:
        """Return the engine's implementation of an import; None if the stubs provide it."""
        if module != MODULE or name in STUBBED:
            return None
        wasmtime = load_wasmtime()
        if self._linker is None:
            self._linker = wasmtime.Linker(store.engine)
            self._linker.define_wasi()
        try:
            return self._linker.get(store, module, name)
        except wasmtime.WasmtimeError:
            return None

    def _printer(self, fd: int) -> Callable[[bytes], None]:
        def write(data: bytes) -> None:
            self._print(fd, data)

        return write


def _set_stdin(config: Any, data: bytes) -> None:
    """Set bytes as standard input; wasmtime's Python class accepts only a file."""
    ffi: Any = importlib.import_module("wasmtime._ffi")
    bindings: Any = importlib.import_module("wasmtime._bindings")
    vector = ffi.wasm_byte_vec_t()
    raw = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
    pointer: Any = ctypes.cast(raw, ctypes.POINTER(ctypes.c_ubyte))
    bindings.wasm_byte_vec_new(ctypes.byref(vector), len(data), pointer)
    bindings.wasi_config_set_stdin_bytes(config.ptr(), ctypes.byref(vector))
