"""`python -m bench.guests`: a tool call in a fresh guest, a reused one, plain Python and a process; live guests.

Medians of calls in one process, interleaved; the memory of many live guests as what the process grew by.
"""

import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from treadle.guests.caller import TOOL_SIGNATURE, Caller
from treadle.guests.sandbox.engine import THREAD_STACK_BYTES, EngineSpec, engine_of, load_wasmtime
from treadle.guests.sandbox.instance import Control, Sandbox
from treadle.guests.sandbox.limits import SandboxLimits
from treadle.guests.stage.toolrun import ToolCall, run_tool

LIVE = 1_000
ROUNDS = 300
LIMITS = SandboxLimits(cpu_s=600, wall_s=600)
SPEC = EngineSpec()
GUEST = """(module
  (memory (export "memory") 2)
  (func (export "cchat_alloc") (param i32) (result i32) (i32.const 4096))
  (func (export "tool_echo") (param i32 i32 i32 i32) (result i32)
    (memory.copy (local.get 2) (local.get 0) (local.get 1))
    (i32.store (local.get 3) (local.get 1)) (i32.const 0)))"""


def opened(module: object) -> Sandbox:
    sandbox = Sandbox(module, SPEC, Control(LIMITS))
    sandbox.start({}, lambda _module, _name: None)
    return sandbox


def median_us(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def measure() -> None:
    module = load_wasmtime().Module(engine_of(SPEC), GUEST)
    kept = opened(module)
    echo = kept.function("tool_echo", TOOL_SIGNATURE)
    caller = Caller(kept)
    call = ToolCall(name="echo", arguments='{"a":1}')
    rows = {
        "plain Python call": median_us(lambda: b'{"a":1}'.decode()),
        "reused guest": median_us(lambda: caller.call(echo, '{"a":1}', 65_536)),
        "fresh guest": median_us(lambda: run_tool(module, SPEC, Control(LIMITS), call, lambda _: None)),
        "subprocess": median_us(lambda: subprocess.run([sys.executable, "-c", ""], check=True), 10),
    }
    for name, value in rows.items():
        print(f"{name:20} {value:10.1f} us")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    live = [opened(module) for _ in range(LIVE)]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{len(live)} live guests    {grown / 1024:10.1f} MiB")


def main() -> None:
    threading.stack_size(THREAD_STACK_BYTES)
    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
