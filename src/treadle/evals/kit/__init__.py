"""The tools of the toolkit beside those of the workspace: plain ones, a small world of things, and distractors.

Deterministic, in memory.
"""
