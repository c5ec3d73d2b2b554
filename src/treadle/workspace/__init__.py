"""Workspaces: facts, drafts, locks, and proposals that a person confirms."""
