"""What a request costs, counted and not timed: the same on every machine."""
