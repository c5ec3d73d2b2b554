"""Who may say that a call runs, where nobody can be asked. The desk in `approval/` asks people."""

from treadle.core.tool_definitions import CallContext
from treadle.engine.ports import PendingApproval, PermissionRequest, Verdict


class DenyAll:
    """Answers every question with no."""

    async def ask(self, plea: PermissionRequest, context: CallContext) -> PendingApproval | Verdict:
        """Deny the call and tell the model why."""
        why = "; ".join(plea.reasons)
        reason = f"The tool {plea.call.name!r} needs a person's approval ({why}), and there is nobody to ask here."
        return Verdict(approved=False, reason=reason)

    async def hear(self, approval_id: str, context: CallContext) -> Verdict:
        """Deny what somebody else was asked."""
        return Verdict(approved=False, reason="There is nobody to ask here.")
