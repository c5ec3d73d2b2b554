"""The terminal: harmless text, finished blocks, and a line to type in.

Nothing here starts a run or knows a protocol.
"""
