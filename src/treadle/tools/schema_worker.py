"""Checks values in a process that can be killed, for schemas and values whose check has no small bound in advance.

A hostile pattern, or a value made for a schema, costs at most `CHECK_S` of a core that no other request waits for.
`WorkerSchema` asks, `main` answers; both ends speak length-prefixed JSON over pipes.
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
"""For a free worker: every other one is busy for at most `CHECK_S` at a time."""
WORKERS_MAX = 2
MEMORY_BYTES_MAX = 1_073_741_824
COMPILED_MAX = 32
INTEGER_BITS_MAX = 1024
_HEAD = struct.Struct("=I")
_READY = b"r"


class CheckTimeout(ValueError):
    """A value could not be checked within the bounds on work; the message says so."""


class SchemaQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is asked: to compile a schema, or to hold a value against it."""

    wanted: Literal["compile", "is_valid", "faults"]
    schema: str
    is_recursive: bool
    value: msgspec.Raw = msgspec.Raw(b"null")


class SchemaReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What it answers; `bad_schema` says why a schema cannot be compiled."""

    is_valid: bool = False
    faults: list[Fault] = []
    bad_schema: str = ""


class WorkerSchema:
    """A schema that is compiled in the workers only. All methods block: they are for threads.

    Raises: BadSchema, when it cannot be compiled, or not within the bounds.
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
        """Tell whether the value fits.

        Raises: CheckTimeout.
        """
        return self._ask("is_valid", _written(value)).is_valid

    def faults(self, value: object) -> list[Fault]:
        """List what is wrong with the value.

        Raises: CheckTimeout.
        """
        return self._ask("faults", _written(value)).faults

    def _ask(self, wanted: Literal["compile", "is_valid", "faults"], value: bytes = b"null") -> SchemaReply:
        question = SchemaQuestion(
            wanted=wanted, schema=self._text, is_recursive=self._is_recursive, value=msgspec.Raw(value)
        )
        return workers.ask(write_json(question))


class SchemaWorker:
    """One process, started when it is first needed and again after it was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes) -> SchemaReply:
        """Send a question and wait for its answer; a process that is late is killed, and its pipes end with it."""
        process = self.process or self._start()
        late = threading.Timer(CHECK_S, process.kill)
        late.daemon = True
        late.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(_HEAD.pack(len(question)) + question)
            process.stdin.flush()
            return msgspec.json.decode(_received(process.stdout), type=SchemaReply)
        except (OSError, EOFError, msgspec.MsgspecError):
            self.close()
            raise CheckTimeout(f"it could not be checked against the schema within {CHECK_S:g} s") from None
        except BaseException:
            self.close()
            raise
        finally:
            late.cancel()

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        with process, contextlib.suppress(OSError):
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self.process = process = subprocess.Popen(
            bare_command("treadle.tools.schema_worker", extra=_packages()),
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
    """A few workers; the one that was used last is used first, so that most processes need only one."""

    def __init__(self) -> None:
        self._idle: queue.LifoQueue[SchemaWorker] = queue.LifoQueue()
        for _ in range(WORKERS_MAX):
            self._idle.put(SchemaWorker())

    def ask(self, question: bytes) -> SchemaReply:
        """Have a free worker answer."""
        try:
            worker = self._idle.get(timeout=WAIT_S)
        except queue.Empty:
            raise CheckTimeout("it could not be checked against the schema: all workers are busy") from None
        try:
            return worker.ask(question)
        finally:
            self._idle.put(worker)


workers = SchemaWorkers()


def _renew() -> None:
    """Forget the workers of the parent: two processes must not read from one socket."""
    global workers
    workers = SchemaWorkers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _written(value: object) -> bytes:
    # Spelling an integer takes time quadratic in its digits, and the GIL is held meanwhile.
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


def _packages() -> tuple[str, ...]:
    specs = [importlib.util.find_spec(name) for name in ("jsonschema_rs", "msgspec")]
    return tuple(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin))


def _received(source: IO[bytes]) -> bytes:
    head = source.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    size = _HEAD.unpack(head)[0]
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def main() -> None:
    """Answer questions until the other side is gone."""
    _bound_memory()
    compiled: dict[str, CompiledSchema] = {}
    sink = sys.stdout.buffer
    with contextlib.suppress(OSError, EOFError):
        sink.write(_READY)
        sink.flush()
        while True:
            question = msgspec.json.decode(_received(sys.stdin.buffer), type=SchemaQuestion)
            # Whoever asked may be gone, and then nobody else ends this process.
            _alarm(2 * CHECK_S)
            answer = write_json(_answer(question, compiled))
            _alarm(0)
            sink.write(_HEAD.pack(len(answer)) + answer)
            sink.flush()


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _answer(question: SchemaQuestion, compiled: dict[str, CompiledSchema]) -> SchemaReply:
    known = compiled.get(question.schema)
    if known is None:
        schema: Any = msgspec.json.decode(question.schema)
        try:
            known = CompiledSchema(schema, is_recursive=question.is_recursive, is_linear=False)
        except BadSchema as error:
            return SchemaReply(bad_schema=str(error))
        if len(compiled) >= COMPILED_MAX:
            compiled.pop(next(iter(compiled)))
        compiled[question.schema] = known
    if question.wanted == "compile":
        return SchemaReply(is_valid=True)
    value: Any = json.loads(bytes(question.value))
    if question.wanted == "is_valid":
        return SchemaReply(is_valid=known.is_valid(value))
    return SchemaReply(faults=known.faults(value))


def _bound_memory() -> None:
    """Let a value or schema that needs more memory than that end this process and nothing else."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
