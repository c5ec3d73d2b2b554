"""Treadle's own loop as a library: the journal kept where the second argument says, or not at all."""

import asyncio
import sys

from lines import serve

from treadle import RunEnded, Runtime, Settings, TextDelta, tool
from treadle.config import LimitsSection, StoreSection, Upstream
from treadle.runtime import Parts

URL, STORE = sys.argv[1:3]


@tool(name="bench_add", effect="read")
async def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Serve runs."""
    settings = Settings(
        store=StoreSection(persistence="off") if STORE == "off" else StoreSection(url=STORE),
        upstream=(Upstream(name="bench", base_url=URL, models=("bench-*",)),),
        limits=LimitsSection(max_iterations=2_000, max_total_tool_calls=2_000),
    )
    async with Runtime(settings, tools=(bench_add,), parts=Parts(env={})) as runtime:

        async def run(model: str) -> str:
            said: list[str] = []
            async for event in runtime.run("go", model=model):
                match event:
                    case TextDelta(text=text):
                        said.append(text)
                    case RunEnded(status=status, error=error) if status != "completed":
                        return f"{status}: {error}"
                    case _:
                        pass
            return "".join(said)

        await serve(run)


if sys.platform == "win32":
    asyncio.run(main())
else:
    import uvloop

    uvloop.run(main())
