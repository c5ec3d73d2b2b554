"""Clients' keys: what each may do and has used, on both databases. No key itself is ever kept.

Never the key itself; who may do what is decided in the access room.
"""
