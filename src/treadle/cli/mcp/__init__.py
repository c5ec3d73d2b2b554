"""Commands that speak MCP, on either side."""
