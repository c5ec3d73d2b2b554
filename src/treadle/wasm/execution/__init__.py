"""Runs guests in threads or processes, and turns what they send into runs."""
