"""`treadle login`: a one-time link to the pages of a running server."""
