"""The durable log of every run: its interface, what is the same on each database, and audits."""
