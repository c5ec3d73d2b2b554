"""The canonical nouns: what every room of Treadle speaks, and nothing that does IO.

Only msgspec and the standard library; pure data and pure functions. No IO, no clock, no randomness, no provider's
spelling.
"""
