"""The data types that every other package uses: items, events, plans, errors. No IO, no clock, no randomness."""
