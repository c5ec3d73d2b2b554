"""Every class of bad input, tried against a server in a process of its own; or named with the test that tries it."""
