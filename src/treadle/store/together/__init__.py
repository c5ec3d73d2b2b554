"""Many writes as one, on both databases. What breaks a rule takes its group apart and is done alone.

Nothing is promised here that a single write does not promise.
"""
