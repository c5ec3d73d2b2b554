"""One module for each command of `treadle`."""
