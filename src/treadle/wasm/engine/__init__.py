"""One WebAssembly instance: compilation, limits, memory, grants, and how it is stopped."""
