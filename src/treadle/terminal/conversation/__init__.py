"""A conversation as the terminal holds it, in this process or at a Treadle elsewhere. Draws nothing, reads no keys."""
