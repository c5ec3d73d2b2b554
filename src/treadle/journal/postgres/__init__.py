"""The journal on PostgreSQL."""
