"""What the console reads and does besides the rest of Treadle's own API: `trace` a run as a tree, `protocols` a model call
as it was sent, `again` a run forked, replayed or exported, `scores` the evaluations on this machine.

Nothing here decides anything: approvals, facts and keys have routes of their own.
"""
