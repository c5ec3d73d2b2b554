"""Workspaces as they are kept: the interface with its promises, and one module for each database.

What the JSON in the rows means is known to the workspace room alone.
"""
