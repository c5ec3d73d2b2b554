"""`treadle eval`: scenarios offline and live, and what can be done with the results.

Playing, grading and comparing are in the evals room.
"""
