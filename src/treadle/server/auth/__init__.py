"""Identifies the client of a request by key, cookie or login link, and checks what it may use."""
