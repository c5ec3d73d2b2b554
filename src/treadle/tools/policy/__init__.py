"""How each tool may run, and who said so.

The runner obeys it. Nothing here runs a tool or reads a file.
"""

from treadle.tools.policy.effective import Policies
from treadle.tools.policy.rules import EffectDefaults, Rule, fits

__all__ = ["EffectDefaults", "Policies", "Rule", "fits"]
