"""Ways to count work, so that tests can tell linear from quadratic without a clock."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_run(work: Callable[[], object]) -> int:
    """Return how many instructions of Python run while the work is done."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


class Counted(str):
    """A text that counts how often any such text is compared or copied behind another."""

    __slots__ = ()
    compared = 0
    joined = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__

    def __radd__(self, other: str) -> str:
        Counted.joined += len(other)
        return f"{other}{self!s}"
