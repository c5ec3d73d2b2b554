"""One codec per protocol, in both directions, as pure translators between bytes and the canonical nouns.

No IO, no clock, no logging: what a translation repaired or dropped is returned as notes. Only this room knows a
provider's spelling.
"""
