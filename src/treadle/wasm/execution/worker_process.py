"""Worker process for guests, run by `python -m`: executes one job after the other, each in a fresh instance.

Length-prefixed JSON frames go both ways; compiled code follows its job as raw bytes. The process has no provider's API
key, opens files only in folders that its job grants, and may be killed at any moment.
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
from treadle.wasm.execution.thread_messages import Answered, Ask, GuestOutput, Message, Sent, Wanted
from treadle.wasm.execution.tool_call import ToolCall, run_tool

ADDRESS_BYTES_MAX = 8_589_934_592
FRAME_BYTES_MAX = 134_217_728


class GuestJob(Message, frozen=True, kw_only=True, omit_defaults=True, tag="job"):
    """Run a session guest (`start`) or one call of a tool guest (`call`); `code_bytes` of code follow the frame."""

    spec: EngineSpec
    limits: SandboxLimits
    code_bytes: int
    is_component: bool = False
    start: ProgramStart | None = None
    call: ToolCall | None = None
    grant: WasiGrant | None = None


class Halt(Message, frozen=True, kw_only=True, omit_defaults=True, tag="halt"):
    """Stop the current job."""


class Done(Message, frozen=True, kw_only=True, omit_defaults=True, tag="done"):
    """The job is over."""

    ended: ProgramEnded | None = None
    outcome: Outcome | None = None


ToWorker = GuestJob | Wanted | Sent | Halt
FromWorker = Ask | Answered | GuestOutput | Done
_reader: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)


def write_frame(message: Message) -> bytes:
    """Encode a message with its length as prefix."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(4, "big") + body


class Pipe:
    """The connection of a guest in this process to its host; implements `Line`."""

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
        """Start a send."""
        self.send(ask)

    def next(self) -> Wanted | Sent:
        """Wait for the send's next tool call, or its end.

        Raises: GuestStopped.
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
        """Return the outcome of the last tool call."""
        self.send(answered)

    def give_up(self) -> None:
        """Do nothing: the host ends the send when it receives `Done`."""

    def write_output(self, said: GuestOutput) -> None:
        """Forward what the guest logs or prints."""
        self.send(said)


def _run_job(job: GuestJob, code: bytes, pipe: Pipe, control: Control) -> None:
    module = load_code(code, job.spec, is_component=job.is_component)
    if job.start is not None:
        pipe.send(Done(ended=run_program(module, job.spec, control, pipe, job.start, job.grant)))
    elif job.call is not None:
        outcome = run_tool(module, job.spec, control, job.call, pipe.write_output, job.grant)
        pipe.send(Done(outcome=outcome, ended=ProgramEnded(stop=control.stop, cpu_s=control.cpu_s)))


def _reserve_stdout() -> BinaryIO:
    """Reserve standard output for frames; other prints of this process go to standard error."""
    frames = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return frames


def main() -> int:
    """Run jobs until the host closes the pipe."""
    bound_process(ADDRESS_BYTES_MAX, None)
    source, pipe = sys.stdin.buffer, Pipe(_reserve_stdout())
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
                thread = threading.Thread(target=_run_job, args=arguments, daemon=True)
                thread.start()
            case Wanted() | Sent():
                pipe.inbox.put(message)
            case Halt():
                if pipe.control is not None:
                    pipe.control.cancel()
    return 0


if __name__ == "__main__":
    # Skip the interpreter's shutdown: a guest still spinning in its thread could block or crash it.
    os._exit(main())
