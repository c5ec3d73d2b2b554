"""Modules that are small and well-formed, and take far more time or memory to compile than they should."""

from collections.abc import Callable, Sequence

HEAD = b"\0asm\1\0\0\0"
I32, END = 0x7F, 0x0B


def number(value: int) -> bytes:
    """Return an unsigned LEB128."""
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def section(kind: int, body: bytes) -> bytes:
    """Return a section of a module."""
    return bytes([kind]) + number(len(body)) + body


def module(bodies: Sequence[bytes]) -> bytes:
    """Return a module of functions `() -> ()` with these bodies, each with its locals in front."""
    types = section(1, number(1) + b"\x60\0\0")
    functions = section(3, number(len(bodies)) + b"\0" * len(bodies))
    memory = section(5, b"\1\0\1")
    code = b"".join(number(len(body)) + body for body in bodies)
    return HEAD + types + functions + memory + section(10, number(len(bodies)) + code)


def locals_of(count: int) -> bytes:
    """Declare that many integers."""
    return number(1) + number(count) + bytes([I32]) if count else number(0)


def huge_function() -> bytes:
    """One function of millions of instructions, none of which can be left out."""
    step = b"\x20\0\x20\0\x28\2\0\x6a\x21\0"  # local 0 += memory[local 0]
    return module([locals_of(1) + step * 500_000 + bytes([END])])


def many_functions() -> bytes:
    """A hundred thousand functions."""
    body = locals_of(1) + b"\x20\0\x28\2\0\x21\0" * 8 + bytes([END])
    return module([body] * 120_000)


def deep_nesting() -> bytes:
    """Loops in loops, each of which may leave all of those around it and changes a local."""
    depth = 30_000
    opened = b"\x03\x40\x20\0\x41\1\x6a\x21\0" * depth
    closed = b"".join(b"\x20\0\x0d" + number(level % min(100, depth - level)) + bytes([END]) for level in range(depth))
    return module([locals_of(1) + opened + closed + bytes([END])] * 8)


def many_locals() -> bytes:
    """Tens of thousands of locals that all stay alive through many branches."""
    count = 20_000
    sets = b"".join(b"\x41\0\x28\2\0\x21" + number(place) for place in range(count))
    branches = b"".join(
        b"\x41\0\x28\2\0\x04\x40\x20" + number(place) + b"\x21" + number((place * 7 + 1) % count) + b"\x0b"
        for place in range(count)
    )
    uses = b"".join(b"\x41\0\x20" + number(place) + b"\x36\2\0" for place in range(count))
    return module([locals_of(count) + sets + b"\x03\x40" + branches + b"\x0b" + uses + bytes([END])])


BOMBS: dict[str, Callable[[], bytes]] = {
    "a huge function": huge_function,
    "many functions": many_functions,
    "deep nesting": deep_nesting,
    "many locals": many_locals,
}
