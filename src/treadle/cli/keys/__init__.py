"""`treadle keys`: make, list and revoke the keys of clients."""
