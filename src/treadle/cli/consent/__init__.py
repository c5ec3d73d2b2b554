"""Whether a call may run: what the terminal's policy says, what a person wants remembered, what a command holds."""
