"""Recovers runs whose process died, from their journal."""
