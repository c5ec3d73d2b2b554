"""Commands about what is said on the wire."""
