"""What single providers do otherwise than their protocol says: as data, and the edits that the data names.

A new quirk is a row with its source and a test from the bytes seen; nothing here is a guess.
"""
