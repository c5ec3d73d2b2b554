"""In which order, and beside which others, the calls of one turn run.

Sequential by default. Calls share a wave only if every one of them says that it may (`parallel`) and only reads;
results go back in call order whatever the waves.
"""

from collections.abc import Sequence

from treadle.canon.tools import ToolPolicy


def waves(policies: Sequence[ToolPolicy]) -> list[list[int]]:
    """Group the positions of the calls into waves; a wave starts when the one before it has ended."""
    grouped: list[list[int]] = []
    open_wave = False
    for position, policy in enumerate(policies):
        shares = policy.parallel and policy.effect == "read"
        if shares and open_wave:
            grouped[-1].append(position)
        else:
            grouped.append([position])
        open_wave = shares
    return grouped
