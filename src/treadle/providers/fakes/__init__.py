"""Models and servers for tests and evaluations that reply from a script."""
