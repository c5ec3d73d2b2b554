"""How a scenario is played: the clock that stands still, the stage with its runs, and the cuts of every reply."""
