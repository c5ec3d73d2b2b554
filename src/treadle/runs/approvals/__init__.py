"""Approvals of calls: the desk that asks people, the rules that answer for them, and deciding.

It knows no HTTP and runs no tool.
"""
