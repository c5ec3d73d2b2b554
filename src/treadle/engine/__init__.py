"""The tool loop of one run: `run_state` decides what comes next, `run_loop` does it."""
