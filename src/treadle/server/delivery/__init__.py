"""Delivers a run to its clients: subscribers, disconnects, and streams that are resumed."""
