"""The journal: the durable, fenced log of every run, and what is found in it."""
