"""Two guests in two threads that fail at the same moment get each its own failure, however often."""

import threading

from treadle.wasm.engine.guest_instance import Control, GuestSandbox, Import
from treadle.wasm.engine.guest_limits import GuestStopped, SandboxLimits
from treadle.wasm.engine.wasmtime_engine import EngineSpec, engine_of, load_wasmtime

CALLS = 26_000
SPEC = EngineSpec()
RAISING = """(module (import "treadle" "f" (func $f (result i32))) (memory (export "memory") 1)
  (func (export "run") (result i32) (call $f)))"""
TRAPPING = '(module (memory (export "memory") 1) (func (export "run") (result i32) unreachable))'


def ends(wat: str, code: str, wrong: list[str]) -> None:
    """Call a guest again and again; every call must end as this guest's does."""
    module = load_wasmtime().Module(engine_of(SPEC), wat)
    control = Control(SandboxLimits(cpu_s=600, wall_s=600))

    def exits() -> int:
        control.end("exit", "mine", 7)
        return 0

    sandbox = GuestSandbox(module, SPEC, control)
    sandbox.start({("treadle", "f"): Import(signature=((), ("i32",)), function=exits)}, lambda _m, _n: None)
    run = sandbox.function("run", ((), ("i32",)))
    assert run is not None
    for _ in range(CALLS):
        control.stop = None
        try:
            sandbox.call(run)
            wrong.append("returned")
        except GuestStopped as stopped:
            if stopped.stop.code != code:
                wrong.append(stopped.stop.message)
    sandbox.close()


def test_fifty_thousand_failures_stay_with_their_guests() -> None:
    """One guest is ended by a host function, the other traps; neither ever gets the other's end."""
    wrong: list[str] = []
    threads = [
        threading.Thread(target=ends, args=(RAISING, "exit", wrong)),
        threading.Thread(target=ends, args=(TRAPPING, "trap", wrong)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
