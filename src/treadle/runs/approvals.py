"""Who may say that a call runs. Until somebody can be asked, nobody agrees to what needs asking."""

from treadle.canon.items import CallItem
from treadle.canon.tools import CallContext, Offer
from treadle.engine.ports import Verdict


class DenyAll:
    """Answers every question with no."""

    async def ask(self, call: CallItem, offer: Offer, context: CallContext) -> Verdict:
        """Deny the call and tell the model why."""
        reason = f"The tool {call.name!r} needs a person's approval, and there is nobody to ask here."
        return Verdict(approved=False, reason=reason)
