"""An answer put together from the pieces an upstream sends: items and their events, whatever the protocol.

No protocol's words, no IO.
"""
