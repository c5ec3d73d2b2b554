"""Approvals as they are kept: the interface, and how SQLite and PostgreSQL fit it."""
