"""The terminal: harmless text, finished blocks, and a line to type in."""
