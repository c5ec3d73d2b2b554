"""Compiles guests and remembers the result, in memory and on disk.

Compiled code is run as it is, so only what this process, or one with the same secret, wrote is ever loaded: every file
carries a keyed hash of its content. An upload of compiled code is never taken.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from treadle.canon.errors import RequestError
from treadle.guests.sandbox.compiling import COMPONENT, REFUSED, Order, Refused, compile_code
from treadle.guests.sandbox.engine import EngineSpec, engine_of, load_wasmtime
from treadle.guests.sandbox.limits import COMPONENT_BYTES_MAX, SESSION_LIMITS

ADDRESS_BYTES_MAX = 4_294_967_296
COMPONENT_ADDRESS_BYTES_MAX = 17_179_869_184
COMPILE_CPU_S = 60
COMPILE_WALL_S = 120
KEPT_MAX = 64
_KEY_NAME = "key"
_KEY_BYTES = 32
_MAC_BYTES = 32


class BadGuest(RequestError):
    """The bytes are no guest: not WASM, too large, or more than can be compiled within the limits."""

    code = "invalid_guest"


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled code, and how it came about."""

    code: bytes
    digest: str
    is_component: bool = False
    was_cached: bool = False
    seconds: float = 0.0


class Compiler:
    """Compiles within limits; `folder` keeps what was compiled over restarts, `in_child=False` trusts the module."""

    def __init__(self, folder: Path | None = None, *, in_child: bool = True) -> None:
        self._folder = folder
        self._in_child = in_child
        self._kept: OrderedDict[str, Compiled] = OrderedDict()
        self._loaded: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, wasm: bytes, spec: EngineSpec, *, bytes_max: int = SESSION_LIMITS.module_bytes_max) -> Compiled:
        """Return the compiled code of a module or component.

        Raises: BadGuest.
        """
        is_component = is_component_code(wasm)
        bytes_max = COMPONENT_BYTES_MAX if is_component else bytes_max
        if len(wasm) > bytes_max:
            raise BadGuest(f"The guest has {len(wasm)} bytes; at most {bytes_max} are taken.", param="path")
        digest = f"{hashlib.sha256(wasm).hexdigest()}-{version('wasmtime')}-{spec.digest}"
        with self._lock:
            found = self._kept.get(digest)
        code = self._read(digest) if found is None else None
        if found is None and code is not None:
            found = Compiled(code=code, digest=digest, is_component=is_component)
        if found is not None:
            self._keep(found)
            return msgspec.structs.replace(found, was_cached=True)
        began = time.perf_counter()
        code = self._compile(wasm, spec, is_component)
        seconds = time.perf_counter() - began
        compiled = Compiled(code=code, digest=digest, is_component=is_component, seconds=seconds)
        self._write(digest, code)
        self._keep(compiled)
        return compiled

    def load(self, compiled: Compiled, spec: EngineSpec) -> Any:
        """Return compiled code as a module or component that can be instantiated."""
        with self._lock:
            found = self._loaded.get(compiled.digest)
            if found is None:
                found = load_code(compiled.code, spec, is_component=compiled.is_component)
                self._loaded[compiled.digest] = found
                _trim(self._loaded)
            return found

    def _keep(self, compiled: Compiled) -> None:
        with self._lock:
            self._kept[compiled.digest] = compiled
            _trim(self._kept)

    def _compile(self, wasm: bytes, spec: EngineSpec, is_component: bool) -> bytes:
        if not self._in_child:
            try:
                return compile_code(wasm, spec)
            except Refused as error:
                raise _refusal(str(error)) from None
        address = COMPONENT_ADDRESS_BYTES_MAX if is_component else ADDRESS_BYTES_MAX
        order = Order(spec=spec, address_bytes_max=address, cpu_s=COMPILE_CPU_S)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "treadle.guests.sandbox.compiling"],
                input=msgspec.json.encode(order) + b"\n" + wasm,
                capture_output=True,
                timeout=COMPILE_WALL_S,
                env=child_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _refusal(f"compiling took longer than {COMPILE_WALL_S} s") from None
        if done.returncode == 0:
            return done.stdout
        if done.returncode == REFUSED:
            raise _refusal(done.stderr.decode("utf-8", "replace")[:400])
        raise _refusal(f"compiling needs more than {COMPILE_CPU_S} s of CPU or {address >> 30} GiB of memory")

    def _read(self, digest: str) -> bytes | None:
        """Return what is on disk, if it is as it was written; what is not is taken away."""
        if self._folder is None:
            return None
        path = self._folder / f"{digest}.cwasm"
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        mac, code = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if hmac.compare_digest(mac, self._mac(digest, code)):
            return code
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def _write(self, digest: str, code: bytes) -> None:
        """Keep compiled code on disk; a disk that takes nothing only makes the next start slower."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.chmod(0o700)
            part = self._folder / f"{digest}.{secrets.token_hex(4)}.part"
            part.write_bytes(self._mac(digest, code) + code)
            part.replace(self._folder / f"{digest}.cwasm")

    def _mac(self, digest: str, code: bytes) -> bytes:
        return hmac.digest(self._key(), digest.encode() + b"\0" + code, "sha256")

    def _key(self) -> bytes:
        """Return the secret of the folder, made by whoever comes first."""
        assert self._folder is not None, "without a folder nothing is signed"
        path = self._folder / _KEY_NAME
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
        return path.read_bytes()


def load_code(code: bytes, spec: EngineSpec, *, is_component: bool) -> Any:
    """Make a module or component of compiled code that is trusted."""
    wasmtime = load_wasmtime()
    if not is_component:
        return wasmtime.Module.deserialize(engine_of(spec), code)
    from wasmtime.component import Component

    return Component.deserialize(engine_of(spec), code)


def is_component_code(wasm: bytes) -> bool:
    """Tell a component from a core module by its first bytes."""
    return wasm[:8] == COMPONENT


def child_environment() -> dict[str, str]:
    """Return the little of the environment that a child needs: no key of any provider is in it."""
    kept = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _refusal(why: str) -> BadGuest:
    return BadGuest(f"The guest cannot be compiled: {why}.", param="path")


def _trim(kept: OrderedDict[str, Any]) -> None:
    while len(kept) > KEPT_MAX:
        kept.popitem(last=False)
