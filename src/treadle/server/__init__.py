"""The server: HTTP in front of the runtime, and the pages."""
