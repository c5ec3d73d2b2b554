"""What `--help` says beside flags."""
