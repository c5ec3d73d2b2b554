"""The sandbox: one WASM instance, its limits, its memory, and how it is stopped.

Host functions never raise: they return a number or end the guest. No chat, no run, no tool here.
"""
