"""What the chat page shows of runs, made on the server, and the one event stream by which a browser follows it."""
