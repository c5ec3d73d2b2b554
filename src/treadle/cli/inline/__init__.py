"""The terminal's screen with keys: an editor below the conversation, which scrolls up into the scrollback."""
