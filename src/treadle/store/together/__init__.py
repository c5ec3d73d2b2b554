"""Many writes as one, on both databases. What breaks a rule takes its group apart and is done alone."""
