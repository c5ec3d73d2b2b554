"""Markdown for a terminal: read into blocks and spans, and painted as lines."""
