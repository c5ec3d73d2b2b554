"""Runs the Berkeley Function Calling Leaderboard through the gateway."""
