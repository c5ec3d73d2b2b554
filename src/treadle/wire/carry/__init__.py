"""What a protocol says beyond the canonical nouns, carried to another protocol: readably, or with a note.

By tables; what cannot be carried readably is noted.
"""

from treadle.wire.carry.answers import Bearer, BearingDecoder
from treadle.wire.carry.options import carry_options

__all__ = ["Bearer", "BearingDecoder", "carry_options"]
