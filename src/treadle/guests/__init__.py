"""WASM session guests: the cchat host calls and what guests send through them."""
