"""Answers that were broken off and are told on.

Pure.
"""
