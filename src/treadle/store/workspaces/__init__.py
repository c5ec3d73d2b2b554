"""Workspaces as they are kept: the interface with its promises, and one module for each database."""
