"""Answers that were broken off and are told on.

Pure.
"""

from treadle.wire.resume.mend import DIVERGED, Mend, diverged

__all__ = ["DIVERGED", "Mend", "diverged"]
