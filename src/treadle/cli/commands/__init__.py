"""The commands that read the journal."""
