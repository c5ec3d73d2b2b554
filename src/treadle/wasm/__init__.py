"""WASM guests: tools and programs in a WebAssembly sandbox, and the cchat host interface that they call."""
