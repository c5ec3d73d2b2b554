"""An anchor from outside: the questions of the Berkeley Function Calling Leaderboard, asked through the gateway.

Nothing of the benchmark is shipped here.
"""
