"""Trust in files of configuration: `treadle trust`, and the question at a terminal."""
