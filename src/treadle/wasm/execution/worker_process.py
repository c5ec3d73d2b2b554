"""A guest in a process of its own: `python -m` this runs one job after the other, each in a fresh instance.

Frames of JSON, each behind its length, go both ways; compiled code follows its job as bytes. The process has no key of
any provider, opens no file but in folders that its job grants, and may be killed at any moment.
"""

import os
import queue
import sys
import threading
import time
from typing import BinaryIO

import msgspec

from treadle.core.tool_definitions import Outcome
from treadle.wasm.engine.compile_process import bound_process
from treadle.wasm.engine.compiler import load_code
from treadle.wasm.engine.guest_instance import Control
from treadle.wasm.engine.guest_limits import GuestStopped, SandboxLimits, Stop
from treadle.wasm.engine.wasi_grants import WasiGrant
from treadle.wasm.engine.wasmtime_engine import THREAD_STACK_BYTES, EngineSpec
from treadle.wasm.execution.session_program import ProgramEnded, ProgramStart, run_program
from treadle.wasm.execution.thread_messages import Answered, Ask, Message, Said, Sent, Wanted
from treadle.wasm.execution.tool_call import ToolCall, run_tool

ADDRESS_BYTES_MAX = 8_589_934_592
FRAME_BYTES_MAX = 134_217_728


class GuestJob(Message, frozen=True, kw_only=True, omit_defaults=True, tag="job"):
    """Run a session guest (`start`) or one call of a tool guest (`call`); `code_bytes` of code come after it."""

    spec: EngineSpec
    limits: SandboxLimits
    code_bytes: int
    is_component: bool = False
    start: ProgramStart | None = None
    call: ToolCall | None = None
    grant: WasiGrant | None = None


class Halt(Message, frozen=True, kw_only=True, omit_defaults=True, tag="halt"):
    """Stop what is going on."""


class Done(Message, frozen=True, kw_only=True, omit_defaults=True, tag="done"):
    """The job is over."""

    ended: ProgramEnded | None = None
    outcome: Outcome | None = None


ToWorker = GuestJob | Wanted | Sent | Halt
FromWorker = Ask | Answered | Said | Done
_reader: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)


def write_frame(message: Message) -> bytes:
    """Return a message with its length in front."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(4, "big") + body


class Pipe:
    """The line of a guest that is a process. Fits `Line`."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self.inbox: queue.SimpleQueue[Wanted | Sent | None] = queue.SimpleQueue()
        self.control: Control | None = None

    def send(self, message: Message) -> None:
        """Write one frame."""
        with self._lock:
            self._out.write(write_frame(message))
            self._out.flush()

    def ask(self, ask: Ask) -> None:
        """Begin a send."""
        self.send(ask)

    def next(self) -> Wanted | Sent:
        """Wait for what the send wants next, or its end.

        Raises: Stopped.
        """
        assert self.control is not None, "a job is going on"
        try:
            got = self.inbox.get(timeout=max(0.0, self.control.deadline - time.monotonic()))
        except queue.Empty:
            self.control.must_stop()
            got = None
        if got is None:
            raise GuestStopped(self.control.stop or Stop(code="timeout", message="The guest's time is used up."))
        return got

    def answer(self, answered: Answered) -> None:
        """Answer the call that was wanted last."""
        self.send(answered)

    def give_up(self) -> None:
        """Do nothing: the host ends the send when it hears that the guest is done."""

    def say(self, said: Said) -> None:
        """Pass on what the guest logs or prints."""
        self.send(said)


def _work(job: GuestJob, code: bytes, pipe: Pipe, control: Control) -> None:
    module = load_code(code, job.spec, is_component=job.is_component)
    if job.start is not None:
        pipe.send(Done(ended=run_program(module, job.spec, control, pipe, job.start, job.grant)))
    elif job.call is not None:
        outcome = run_tool(module, job.spec, control, job.call, pipe.say, job.grant)
        pipe.send(Done(outcome=outcome, ended=ProgramEnded(stop=control.stop, cpu_s=control.cpu_s)))


def _own_output() -> BinaryIO:
    """Take standard output for frames alone: whatever else prints in this process goes to standard error."""
    frames = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return frames


def main() -> int:
    """Run jobs until the host closes the pipe."""
    bound_process(ADDRESS_BYTES_MAX, None)
    source, pipe = sys.stdin.buffer, Pipe(_own_output())
    threading.stack_size(THREAD_STACK_BYTES)
    thread: threading.Thread | None = None
    while head := source.read(4):
        message = _reader.decode(source.read(int.from_bytes(head, "big")))
        match message:
            case GuestJob():
                if thread is not None:
                    thread.join()
                pipe.inbox = queue.SimpleQueue()
                control = pipe.control = Control(message.limits)
                inbox = pipe.inbox
                control.on_cancel(lambda inbox=inbox: inbox.put(None))
                arguments = (message, source.read(message.code_bytes), pipe, control)
                thread = threading.Thread(target=_work, args=arguments, daemon=True)
                thread.start()
            case Wanted() | Sent():
                pipe.inbox.put(message)
            case Halt():
                if pipe.control is not None:
                    pipe.control.cancel()
    return 0


if __name__ == "__main__":
    # Without the interpreter's farewell: a guest that still spins in its thread would only disturb it.
    os._exit(main())
