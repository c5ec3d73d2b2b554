"""The journal on SQLite. Modules have the names of their twins in `journal/postgres`."""
