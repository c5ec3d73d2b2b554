"""An MCP server as anybody might have written it; Treadle starts it and speaks to it over its pipes."""

from mcp.server import MCPServer

app = MCPServer("warehouse")


@app.tool()
def count_stock(article: str) -> int:
    """Count the pieces of an article in stock."""
    return {"A7": 41}.get(article, 0)


app.run()
