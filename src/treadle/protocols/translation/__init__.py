"""Fits a request to a provider that lacks some feature, and restores what was changed in its reply."""
