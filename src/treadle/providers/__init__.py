"""Sends a plan to a model: provider endpoints, the router that picks one, and their error handling."""
