"""Replays recorded runs: for clients that reconnect, for `treadle replay`, and as cassettes."""
