"""Who asks, by key or by cookie, what of the server they may use, and how much at a time.

Keys themselves are in the access room.
"""
