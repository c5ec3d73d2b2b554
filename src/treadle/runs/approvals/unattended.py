"""The approver for processes where no person can be asked: denies every call that needs approval."""

from treadle.core.tool_definitions import CallContext
from treadle.engine.ports import ApprovalVerdict, PendingApproval, PermissionRequest


class DenyAll:
    """Denies every request."""

    async def ask(self, request: PermissionRequest, context: CallContext) -> PendingApproval | ApprovalVerdict:
        """Deny the call, with the reason for the model."""
        why = "; ".join(request.reasons)
        reason = f"The tool {request.call.name!r} needs a person's approval ({why}), and there is nobody to ask here."
        return ApprovalVerdict(approved=False, reason=reason)

    async def wait(self, approval_id: str, context: CallContext) -> ApprovalVerdict:
        """Deny a request that another approver made."""
        return ApprovalVerdict(approved=False, reason="There is nobody to ask here.")
