"""Serves Treadle's tools to MCP clients. The SDK is imported when the first client connects."""
