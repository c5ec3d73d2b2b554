"""The commands about WASM guests: run, check, new, build."""
