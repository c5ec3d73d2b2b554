"""The interactive chat in the terminal."""
