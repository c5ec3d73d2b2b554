"""The loop that keeps turning: a pure state machine that decides, and a shell that does."""
