"""`python -m bench.guests`: a tool call in a fresh guest, a reused one, plain Python and a process; live guests.

Medians of calls in one process, taken in turns so that all see the same machine; the memory of many live guests, each
of which has run a call, as what the process grew by.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from treadle.wasm.engine.guest_instance import Control, GuestSandbox
from treadle.wasm.engine.guest_limits import SandboxLimits
from treadle.wasm.engine.wasmtime_engine import THREAD_STACK_BYTES, EngineSpec, engine_of, load_wasmtime
from treadle.wasm.execution.tool_call import ToolCall, run_tool
from treadle.wasm.guest_function_call import TOOL_SIGNATURE, Caller

LIVE = 1_000
ROUNDS = 300
LIMITS = SandboxLimits(cpu_s=600, wall_s=600)
SPEC = EngineSpec()
ARGUMENTS = '{"a":1}'
WASI = "".join(
    f'(import "wasi_snapshot_preview1" "{name}" (func (param i32 i32) (result i32)))'
    for name in ("fd_fdstat_get", "args_get", "args_sizes_get", "environ_get", "environ_sizes_get", "fd_prestat_get")
)
GUEST = """(module
  (memory (export "memory") 2)
  (func (export "cchat_alloc") (param i32) (result i32) (i32.const 4096))
  (func (export "tool_echo") (param i32 i32 i32 i32) (result i32)
    (memory.copy (local.get 2) (local.get 0) (local.get 1))
    (i32.store (local.get 3) (local.get 1)) (i32.const 0)))"""


def opened(module: object) -> GuestSandbox:
    sandbox = GuestSandbox(module, SPEC, Control(LIMITS))
    sandbox.start({}, lambda _module, _name: None)
    return sandbox


def medians_us(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) * 1e6 for name, each in times.items()}


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def used(module: object) -> GuestSandbox:
    sandbox = opened(module)
    Caller(sandbox).call(sandbox.function("tool_echo", TOOL_SIGNATURE), ARGUMENTS, 65_536)
    return sandbox


def measure(rounds: int, live_guests: int) -> None:
    module = load_wasmtime().Module(engine_of(SPEC), GUEST)
    c_like = load_wasmtime().Module(engine_of(SPEC), GUEST.replace("(module", f"(module {WASI}", 1))
    kept = opened(module)
    echo = kept.function("tool_echo", TOOL_SIGNATURE)
    caller = Caller(kept)
    call = ToolCall(name="echo", arguments=ARGUMENTS)
    rows = medians_us(
        {
            "plain Python call": lambda: json.dumps(json.loads(ARGUMENTS)),
            "reused guest": lambda: caller.call(echo, ARGUMENTS, 65_536),
            "fresh guest": lambda: run_tool(module, SPEC, Control(LIMITS), call, lambda _: None),
            "fresh, 6 imports": lambda: run_tool(c_like, SPEC, Control(LIMITS), call, lambda _: None),
        },
        rounds,
    )
    program = [sys.executable, "-c", "import sys; sys.stdout.write(sys.stdin.read())"]
    rows |= medians_us(
        {"subprocess": lambda: subprocess.run(program, input=b"{}", capture_output=True, check=True)}, 10
    )
    for name, value in rows.items():
        print(f"{name:20} {value:10.1f} us   {value / rows['plain Python call']:10.1f} times a plain call")
    before = resident_bytes()
    live = [used(module) for _ in range(live_guests)]
    grown = resident_bytes() - before
    print(f"{len(live)} live guests    {grown / 2**20:10.1f} MiB {grown / len(live) / 1024:10.1f} KiB each")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.guests", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few calls and guests: to see that it works")
    counts = (20, 50) if parser.parse_args().quick else (ROUNDS, LIVE)
    threading.stack_size(THREAD_STACK_BYTES)
    thread = threading.Thread(target=measure, args=counts)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
