"""Decides whether a tool call may run: the policy, remembered permissions, and what a shell command does."""
