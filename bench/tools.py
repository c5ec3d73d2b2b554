"""The tool of the benchmark's tool rounds: as little work as a tool can do."""

from treadle import tool


@tool(name="bench_add", effect="read")
async def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
