"""What every measurement stands on: processes, an upstream, a load generator, targets, turns."""
