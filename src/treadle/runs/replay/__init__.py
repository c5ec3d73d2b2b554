"""Runs read back from their journal: told again, gone on with, and proved."""
