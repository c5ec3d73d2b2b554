"""The chat page's data: sessions, turns, and the event stream that a browser follows."""
