"""The stage between a plan and an upstream's codec: what the upstream cannot take is mapped, and mapped back.

Canonical in, canonical out: no protocol is spelled here, and nothing is lost without a note.
"""

from treadle.wire.adapt.fidelity import check_fidelity, fidelity
from treadle.wire.adapt.restore import Restorer, RestoringDecoder
from treadle.wire.adapt.stage import Adapted, adapt
from treadle.wire.adapt.traits import TRAITS, Rule, Traits

__all__ = [
    "TRAITS",
    "Adapted",
    "Restorer",
    "RestoringDecoder",
    "Rule",
    "Traits",
    "adapt",
    "check_fidelity",
    "fidelity",
]
