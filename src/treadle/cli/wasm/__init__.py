"""The commands about WASM guests: run, check, new, build.

Nothing here loads wasmtime before it is needed.
"""
