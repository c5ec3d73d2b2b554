"""Whether a call may run: what the terminal's policy says, what a person wants remembered, what a command holds.

What cannot be taken apart is asked about.
"""
