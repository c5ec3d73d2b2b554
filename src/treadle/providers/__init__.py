"""Everything that answers a plan: HTTP endpoints, scripts and the demo model, found by a model's name.

No run, no tool and no journal is known here.
"""
