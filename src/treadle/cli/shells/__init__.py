"""Completion scripts, one module for each shell, all written from one tree."""
