"""The sandbox: one WASM instance, its limits, its memory, and how it is stopped."""
