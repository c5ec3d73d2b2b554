"""Conversations at a Treadle elsewhere, over its own HTTP API."""
