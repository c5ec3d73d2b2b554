"""Workspaces over HTTP: `routes` reads and changes them, `proposals` lets a person decide.

Whoever calls it acts as a person. The rules are in the workspace room; nothing here decides.
"""
