"""A chat session in this process or on a remote server. Draws nothing, reads no keys."""
