"""Decides which process drives a background run: this one, any with a free slot, or Temporal."""
