"""How far a slow command is."""
