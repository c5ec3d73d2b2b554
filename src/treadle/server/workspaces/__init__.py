"""Workspaces over HTTP: `routes` reads and changes them, `proposals` lets a person decide."""
