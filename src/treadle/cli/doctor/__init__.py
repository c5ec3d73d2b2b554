"""The checks of `treadle doctor`."""
