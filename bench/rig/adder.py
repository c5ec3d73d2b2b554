"""The tool of the benchmark's tool rounds; it costs nothing, so that what is measured is the loop around it."""

from treadle import tool


@tool(name="bench_add", effect="read")
async def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
