"""What the chat page shows of runs, made on the server, and the one event stream by which a browser follows it.

The page decides and interprets nothing: what a tool did is said here.
"""
