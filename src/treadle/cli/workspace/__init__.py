"""`treadle ws`: workspaces in the terminal.

The rules are in the workspace room.
"""
