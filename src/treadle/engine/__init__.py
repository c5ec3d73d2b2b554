"""The loop that keeps turning: a pure state machine that decides, and a shell that does.

Canonical nouns only: no wire word, no provider, no database, no tool's inside.
"""
