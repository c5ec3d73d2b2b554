"""The client APIs: one module of routes each.

Nothing here knows a loop or a wire word beyond the few JSON objects that are no run: token counts, lists of models and
items.
"""
