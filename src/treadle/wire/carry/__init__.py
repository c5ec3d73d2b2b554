"""What a protocol says beyond the canonical nouns, carried to another protocol: readably, or with a note.

By tables; what cannot be carried readably is noted.
"""
