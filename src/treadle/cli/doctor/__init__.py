"""The looks of `treadle doctor`, by what they look at."""
