"""Everything that answers a plan: HTTP endpoints, scripts and the demo model, found by a model's name."""
