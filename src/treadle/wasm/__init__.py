"""WASM guests: tools and programs in a WebAssembly sandbox, and the cchat interface they call."""
