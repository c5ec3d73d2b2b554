"""Validates values in a child process that can be killed, for schemas and values whose cost has no small upper bound.

A hostile pattern or value costs at most `CHECK_S` of one core, and no other request waits for it. `WorkerSchema` sends
requests, `main` answers them, as length-prefixed JSON over pipes.
"""

import contextlib
import importlib.util
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Literal, cast

import msgspec

from treadle.core.json import write_json
from treadle.core.tool_definitions import Fault
from treadle.tools.compiled_schema import BadSchema, CompiledSchema
from treadle.tools.sandbox.helper_messages import bare_command

CHECK_S = 2.0
WAIT_S = 10.0
"""How long to wait for a free worker; each is busy for at most `CHECK_S` at a time."""
WORKERS_MAX = 2
MEMORY_BYTES_MAX = 1_073_741_824
COMPILED_MAX = 32
INTEGER_BITS_MAX = 1024
_HEAD = struct.Struct("=I")
_READY = b"r"


class CheckTimeout(ValueError):
    """A value could not be checked within the limits."""


class SchemaQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a worker: compile a schema, or check a value against it."""

    wanted: Literal["compile", "is_valid", "faults"]
    schema: str
    is_recursive: bool
    value: msgspec.Raw = msgspec.Raw(b"null")


class SchemaReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's reply; `bad_schema` is why the schema cannot be compiled."""

    is_valid: bool = False
    faults: list[Fault] = []
    bad_schema: str = ""


class WorkerSchema:
    """A schema that is compiled in the workers only. All methods block, so call them in a thread.

    Raises: BadSchema, when it cannot be compiled within the limits.
    """

    def __init__(self, text: bytes, *, is_recursive: bool) -> None:
        self._text, self._is_recursive = text.decode(), is_recursive
        try:
            reply = self._ask("compile")
        except CheckTimeout:
            raise BadSchema(f"the schema does not compile within {CHECK_S:g} s and the memory of its worker") from None
        if reply.bad_schema:
            raise BadSchema(reply.bad_schema)

    def is_valid(self, value: object) -> bool:
        """Return whether the value fits.

        Raises: CheckTimeout.
        """
        return self._ask("is_valid", _encode_value(value)).is_valid

    def faults(self, value: object) -> list[Fault]:
        """List the value's faults.

        Raises: CheckTimeout.
        """
        return self._ask("faults", _encode_value(value)).faults

    def _ask(self, wanted: Literal["compile", "is_valid", "faults"], value: bytes = b"null") -> SchemaReply:
        request = SchemaQuestion(
            wanted=wanted, schema=self._text, is_recursive=self._is_recursive, value=msgspec.Raw(value)
        )
        return workers.ask(write_json(request))


class SchemaWorker:
    """One child process, started on first use and restarted after it was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, request: bytes) -> SchemaReply:
        """Send a request and wait for the reply; a process that exceeds the time limit is killed."""
        process = self.process or self._start()
        # Killing the process closes its pipes, which ends the blocking read below.
        kill_timer = threading.Timer(CHECK_S, process.kill)
        kill_timer.daemon = True
        kill_timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(_HEAD.pack(len(request)) + request)
            process.stdin.flush()
            return msgspec.json.decode(_read_frame(process.stdout), type=SchemaReply)
        except (OSError, EOFError, msgspec.MsgspecError):
            self.close()
            raise CheckTimeout(f"it could not be checked against the schema within {CHECK_S:g} s") from None
        except BaseException:
            self.close()
            raise
        finally:
            kill_timer.cancel()

    def close(self) -> None:
        """Kill the process and reap it."""
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        with process, contextlib.suppress(OSError):
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self.process = process = subprocess.Popen(
            bare_command("treadle.tools.schema_worker", extra=_package_paths()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd=os.sep,
            start_new_session=True,
        )
        assert process.stdout is not None
        if process.stdout.read(len(_READY)) != _READY:
            self.close()
            raise CheckTimeout("it could not be checked against the schema: the worker does not start")
        return process


class SchemaWorkers:
    """A pool of workers, last in first out, so that most processes start only one."""

    def __init__(self) -> None:
        self._idle: queue.LifoQueue[SchemaWorker] = queue.LifoQueue()
        for _ in range(WORKERS_MAX):
            self._idle.put(SchemaWorker())

    def ask(self, request: bytes) -> SchemaReply:
        """Send a request to a free worker and return its reply."""
        try:
            worker = self._idle.get(timeout=WAIT_S)
        except queue.Empty:
            raise CheckTimeout("it could not be checked against the schema: all workers are busy") from None
        try:
            return worker.ask(request)
        finally:
            self._idle.put(worker)


workers = SchemaWorkers()


def _replace_after_fork() -> None:
    """Replace the workers inherited from the parent: two processes must not share one worker's pipes."""
    global workers
    workers = SchemaWorkers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_after_fork)


def _encode_value(value: object) -> bytes:
    # Formatting an integer takes quadratic time in its digits and holds the GIL.
    if _has_huge_integer(value):
        raise CheckTimeout(f"it has an integer of more than {INTEGER_BITS_MAX} bits")
    try:
        return write_json(value)
    except (OverflowError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise CheckTimeout(f"it could not be checked against the schema: {error}") from None


def _has_huge_integer(value: object) -> bool:
    stack: list[Any] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, int) and node.bit_length() > INTEGER_BITS_MAX:
            return True
        if isinstance(node, dict):
            stack.extend(cast("dict[str, Any]", node).values())
        elif isinstance(node, list):
            stack.extend(cast("list[Any]", node))
    return False


def _package_paths() -> tuple[str, ...]:
    specs = [importlib.util.find_spec(name) for name in ("jsonschema_rs", "msgspec")]
    return tuple(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin))


def _read_frame(source: IO[bytes]) -> bytes:
    head = source.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    size = _HEAD.unpack(head)[0]
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def main() -> None:
    """Answer requests on standard input until it is closed."""
    _limit_memory()
    compiled: dict[str, CompiledSchema] = {}
    sink = sys.stdout.buffer
    with contextlib.suppress(OSError, EOFError):
        sink.write(_READY)
        sink.flush()
        while True:
            request = msgspec.json.decode(_read_frame(sys.stdin.buffer), type=SchemaQuestion)
            # The parent may have exited, and with it the timer that would kill this process.
            _alarm(2 * CHECK_S)
            answer = write_json(_answer(request, compiled))
            _alarm(0)
            sink.write(_HEAD.pack(len(answer)) + answer)
            sink.flush()


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _answer(request: SchemaQuestion, compiled: dict[str, CompiledSchema]) -> SchemaReply:
    known = compiled.get(request.schema)
    if known is None:
        schema: Any = msgspec.json.decode(request.schema)
        try:
            known = CompiledSchema(schema, is_recursive=request.is_recursive, is_linear=False)
        except BadSchema as error:
            return SchemaReply(bad_schema=str(error))
        if len(compiled) >= COMPILED_MAX:
            compiled.pop(next(iter(compiled)))
        compiled[request.schema] = known
    if request.wanted == "compile":
        return SchemaReply(is_valid=True)
    value: Any = json.loads(bytes(request.value))
    if request.wanted == "is_valid":
        return SchemaReply(is_valid=known.is_valid(value))
    return SchemaReply(faults=known.faults(value))


def _limit_memory() -> None:
    """Limit this process's memory, so that a hostile schema or value cannot exhaust the machine's."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
