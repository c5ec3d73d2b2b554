"""A tool that takes its time. It changes nothing when it runs again, so a crash may repeat it."""

from treadle import ToolContext, tool


@tool(effect="idempotent", timeout_s=60)
def write_report(seconds: float, context: ToolContext) -> str:
    """Write the report.

    Args:
        seconds: How long it may take.
    """
    context.wait_cancelled(seconds)
    return f"written in {seconds:g} s under the key {context.idempotency_key[:8]}"
