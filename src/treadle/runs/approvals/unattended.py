"""Who may say that a call runs, where nobody can be asked. The desk in `approval/` asks people."""

from treadle.core.tool_definitions import CallContext
from treadle.engine.ports import ApprovalVerdict, PendingApproval, PermissionRequest


class DenyAll:
    """Answers every question with no."""

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        """Deny the call and tell the model why."""
        why = "; ".join(request.reasons)
        reason = f"The tool {request.call.name!r} needs a person's approval ({why}), and there is nobody to ask here."
        return ApprovalVerdict(approved=False, reason=reason)

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        """Deny what somebody else was asked."""
        return ApprovalVerdict(approved=False, reason="There is nobody to ask here.")
