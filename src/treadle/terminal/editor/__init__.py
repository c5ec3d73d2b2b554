"""The terminal's screen with keys: an editor below the conversation, which scrolls up into the scrollback.

No run is started here, and nothing that has scrolled away is painted again.
"""
