"""Mutation testing: small faults put into the sources one at a time, to see which of them no test would notice."""
