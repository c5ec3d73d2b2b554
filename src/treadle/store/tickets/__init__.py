"""Tickets of logins that are good no more."""
