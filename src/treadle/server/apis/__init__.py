"""The client APIs: one module of routes each."""
