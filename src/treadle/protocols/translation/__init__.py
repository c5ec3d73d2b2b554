"""The stage between a plan and an upstream's codec: what the upstream cannot take is mapped, and mapped back.

Canonical in, canonical out: no protocol is spelled here, and nothing is lost without a note.
"""
