"""Conversations at a Treadle elsewhere, over its own HTTP API.

No store is opened here.
"""
