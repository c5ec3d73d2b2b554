"""Builds items and events from the pieces that a provider streams, for all four protocols."""
