"""The journal: the durable, fenced log of every run, and what is found in it.

No wire word, no HTTP; it keeps canonical entries exactly and decides nothing about a run.
"""
