"""Copies of a journal, and journals made from copies: one module for each engine.

Nothing here knows a run.
"""
