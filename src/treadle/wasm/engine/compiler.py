"""Compiles guests and caches the result in memory and on disk.

Compiled code is executed unchecked, so only code written by a process with the same secret is loaded: every cache file
carries a keyed hash of its content. Uploads of compiled code are never accepted.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import RequestError
from treadle.wasm.engine.compile_process import COMPONENT, REFUSED, CompileOrder, CompileRefused, compile_code
from treadle.wasm.engine.guest_limits import COMPONENT_BYTES_MAX, SESSION_LIMITS
from treadle.wasm.engine.wasmtime_engine import EngineSpec, engine_of, load_wasmtime

KEPT_MAX = 64
_OUT_OF_TIME = frozenset({signal.SIGXCPU, signal.SIGKILL})
_KEY_NAME = "key"
_KEY_BYTES = 32
_MAC_BYTES = 32


class CompileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of compiling one guest, enforced on a child process."""

    cpu_s: int
    wall_s: float
    address_bytes_max: int


CORE_COST = CompileLimits(cpu_s=60, wall_s=120.0, address_bytes_max=4_294_967_296)
COMPONENT_COST = CompileLimits(cpu_s=300, wall_s=600.0, address_bytes_max=17_179_869_184)
"""Components may embed a whole language runtime: tens of megabytes of code."""


class BadGuest(RequestError):
    """The bytes are not a guest: not WASM, too large, or too costly to compile."""

    code = "invalid_guest"


class CompiledModule(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled code, how long it took, and whether it was cached."""

    code: bytes
    digest: str
    is_component: bool = False
    was_cached: bool = False
    seconds: float = 0.0


class Compiler:
    """Compiles within limits; `folder` is a cache on disk, `in_child=False` is for trusted modules."""

    def __init__(
        self, folder: Path | None = None, *, in_child: bool = True, limits: CompileLimits | None = None
    ) -> None:
        self._folder = folder
        self._in_child = in_child
        self._limits = limits
        self._kept: OrderedDict[str, CompiledModule] = OrderedDict()
        self._loaded: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def compile(
        self, wasm: bytes, spec: EngineSpec, *, bytes_max: int = SESSION_LIMITS.module_bytes_max
    ) -> CompiledModule:
        """Return the compiled code of a module or component.

        Raises: BadGuest.
        """
        is_component = is_component_code(wasm)
        bytes_max = COMPONENT_BYTES_MAX if is_component else bytes_max
        if len(wasm) > bytes_max:
            raise BadGuest(f"The guest has {len(wasm)} bytes; at most {bytes_max} are taken.", param="path")
        spec = spec.of(is_component=is_component)
        digest = f"{hashlib.sha256(wasm).hexdigest()}-{version('wasmtime')}-{spec.digest}"
        with self._lock:
            found = self._kept.get(digest)
        code = self._read(digest) if found is None else None
        if found is None and code is not None:
            found = CompiledModule(code=code, digest=digest, is_component=is_component)
        if found is not None:
            self._keep(found)
            return msgspec.structs.replace(found, was_cached=True)
        began = time.perf_counter()
        code = self._compile(wasm, spec, is_component)
        seconds = time.perf_counter() - began
        compiled = CompiledModule(code=code, digest=digest, is_component=is_component, seconds=seconds)
        self._write(digest, code)
        self._keep(compiled)
        return compiled

    def load(self, compiled: CompiledModule, spec: EngineSpec) -> Any:
        """Return compiled code as a module or component that can be instantiated."""
        with self._lock:
            found = self._loaded.get(compiled.digest)
            if found is None:
                found = load_code(compiled.code, spec, is_component=compiled.is_component)
                self._loaded[compiled.digest] = found
                _evict(self._loaded)
            return found

    def _keep(self, compiled: CompiledModule) -> None:
        with self._lock:
            self._kept[compiled.digest] = compiled
            _evict(self._kept)

    def _compile(self, wasm: bytes, spec: EngineSpec, is_component: bool) -> bytes:
        if not self._in_child:
            try:
                return compile_code(wasm, spec)
            except CompileRefused as error:
                raise _refusal(str(error)) from None
        limits = self._limits or (COMPONENT_COST if is_component else CORE_COST)
        order = CompileOrder(spec=spec, address_bytes_max=limits.address_bytes_max, cpu_s=limits.cpu_s)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "treadle.wasm.engine.compile_process"],
                input=msgspec.json.encode(order) + b"\n" + wasm,
                capture_output=True,
                timeout=limits.wall_s,
                env=child_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _refusal(f"compiling took longer than {limits.wall_s:g} s") from None
        if done.returncode == 0:
            return done.stdout
        if done.returncode == REFUSED:
            raise _refusal(done.stderr.decode("utf-8", "replace")[:400])
        if -done.returncode in _OUT_OF_TIME:
            raise _refusal(f"compiling takes more than {limits.cpu_s} s of CPU")
        stderr_text = done.stderr.decode("utf-8", "replace")
        if "memory allocation of" in stderr_text or "MemoryError" in stderr_text or not stderr_text.strip():
            raise _refusal(f"compiling needs more than {limits.address_bytes_max >> 20} MiB of memory")
        raise _refusal(f"the compiler failed: {_panic_message(stderr_text)}")

    def _read(self, digest: str) -> bytes | None:
        """Return the cached code if its hash is right; otherwise delete the file."""
        if self._folder is None:
            return None
        path = self._folder / f"{digest}.cwasm"
        try:
            raw = path.read_bytes()
            mac, code = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
            if hmac.compare_digest(mac, self._mac(digest, code)):
                path.touch()
                return code
        except OSError:
            return None
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def _write(self, digest: str, code: bytes) -> None:
        """Write compiled code to the disk cache; failure only makes the next start slower."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.chmod(0o700)
            part = self._folder / f"{digest}.{secrets.token_hex(4)}.part"
            part.write_bytes(self._mac(digest, code) + code)
            part.replace(self._folder / f"{digest}.cwasm")
            files = sorted(self._folder.glob("*.cwasm"), key=lambda file: file.stat().st_mtime, reverse=True)
            for file in files[KEPT_MAX:]:
                file.unlink()

    def _mac(self, digest: str, code: bytes) -> bytes:
        return hmac.digest(self._key(), digest.encode() + b"\0" + code, "sha256")

    def _key(self) -> bytes:
        """Return the folder's secret; the first process creates it."""
        assert self._folder is not None, "without a folder nothing is signed"
        path = self._folder / _KEY_NAME
        with contextlib.suppress(FileNotFoundError):
            key = path.read_bytes()
            if len(key) == _KEY_BYTES:
                return key
            path.unlink()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._folder / f"{_KEY_NAME}.{secrets.token_hex(4)}.part"
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(part, path)  # atomic: no process can read a partial key
        part.unlink()
        return path.read_bytes()


def load_code(code: bytes, spec: EngineSpec, *, is_component: bool) -> Any:
    """Load trusted compiled code as a module or component."""
    wasmtime = load_wasmtime()
    spec = spec.of(is_component=is_component)
    if not is_component:
        return wasmtime.Module.deserialize(engine_of(spec), code)
    from wasmtime.component import Component

    return Component.deserialize(engine_of(spec), code)


def is_component_code(wasm: bytes) -> bool:
    """Return whether the bytes are a component, not a core module, by the first bytes."""
    return wasm[:8] == COMPONENT


def child_environment() -> dict[str, str]:
    """Return the minimal environment of a child process, without any provider's API key."""
    inherited = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in inherited if name in os.environ}


def _refusal(why: str) -> BadGuest:
    return BadGuest(f"The guest cannot be compiled: {why}.", param="path")


def _panic_message(stderr_text: str) -> str:
    """Return the message of a Rust panic: the line after its location."""
    lines = [line.strip() for line in stderr_text.splitlines() if line.strip()]
    after = (line for place, line in enumerate(lines) if place and "panicked at" in lines[place - 1])
    return next(after, lines[-1])[:200]


def _evict(cache: OrderedDict[str, Any]) -> None:
    while len(cache) > KEPT_MAX:
        cache.popitem(last=False)
