"""A well-behaved MCP server, written with the SDK."""

from mcp.server import MCPServer
from mcp.server.mcpserver import Audio, Context, Image

app = MCPServer("toy")


@app.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool()
def picture() -> Image:
    """Show a picture."""
    return Image(data=b"\x89PNG", format="png")


@app.tool()
def sound() -> Audio:
    """Play a sound."""
    return Audio(data=b"RIFF", format="wav")


@app.tool()
async def climb(steps: int, context: Context) -> str:
    """Climb, and say how far."""
    for step in range(steps):
        await context.report_progress(step + 1, steps, "climbing")
    return "up"


@app.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("out of coffee")


app.run()
