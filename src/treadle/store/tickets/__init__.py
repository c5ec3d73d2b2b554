"""Tickets of logins that are good no more.

What a ticket says is not known here.
"""
