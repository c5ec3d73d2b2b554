"""Where guests run: as a thread or as a process, and the desk that makes runs of what they send.

Guests never run on the thread of the event loop.
"""
