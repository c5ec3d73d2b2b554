"""Treadle's tools for MCP clients. The SDK is imported when the first of them comes.

Every call is a run: one policy, one journal.
"""
