"""One WebAssembly instance: compiled, limited, given its memory and grants, and stopped."""
