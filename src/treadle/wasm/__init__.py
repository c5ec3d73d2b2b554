"""WASM session guests: the cchat host calls and what guests send through them.

Nothing raises because of what a guest sent.
"""
