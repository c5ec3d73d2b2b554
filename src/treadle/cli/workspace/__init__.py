"""`treadle ws`: workspaces in the terminal."""
