"""Logins of people: links, cookies, scopes, and the gate before Treadle's own API and its pages.

Programs with API keys are not handled here.
"""
