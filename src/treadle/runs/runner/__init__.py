"""Who drives a run in the background: the process that took it in, whichever has room, or Temporal."""
