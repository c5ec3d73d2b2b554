"""`treadle store`."""
