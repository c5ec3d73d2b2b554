"""Read-only views of a recorded run: its model calls, its plans, its trace."""
