"""Who drives a run in the background: the process that took it in, whichever has room, or Temporal.

A runner decides only who drives a run and when. What happened in it stands in the journal, whose leases fence off
everybody but one driver: a runner that is wrong, late or away can delay a run and never let it run twice.
"""
