"""Clients' keys: what each may do and has used, on both databases. No key itself is ever kept."""
