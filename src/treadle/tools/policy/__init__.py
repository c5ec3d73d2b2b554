"""How each tool may run, and who said so.

The runner obeys it. Nothing here runs a tool or reads a file.
"""
