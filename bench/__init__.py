"""Measures what Treadle adds: against a direct connection to the same upstream, with and without the journal."""
