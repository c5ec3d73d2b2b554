"""Draws a run in the terminal: safe text, Markdown, highlighted code, tool results, cards."""
