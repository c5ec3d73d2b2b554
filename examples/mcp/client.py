"""An MCP client of Treadle: it sees Treadle's own tools and, through it, those of the other server."""

import asyncio
import os

from mcp import Client

URL = os.environ.get("TREADLE_URL", "http://127.0.0.1:8700")


async def main() -> None:
    """List what there is and call one of each."""
    async with Client(f"{URL}/mcp") as treadle:
        names = sorted(tool.name for tool in (await treadle.list_tools()).tools)
        print("tools:", ", ".join(names))
        for name in names:
            result = await treadle.call_tool(name, {"article": "A7"})
            print(f"{name}: {result.content[0].text}")


asyncio.run(main())
