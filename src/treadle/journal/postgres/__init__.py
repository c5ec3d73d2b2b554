"""The journal on PostgreSQL. Modules have the names of their twins in `journal/sqlite`."""
