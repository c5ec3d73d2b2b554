"""Tools of which one does harm: it runs only once a person has agreed."""

from treadle import tool

LOGS = ["app.log", "old.log", "older.log"]


@tool(effect="read")
def list_logs() -> list[str]:
    """List the log files."""
    return LOGS


@tool(effect="destructive")
def delete_log(file: str) -> str:
    """Delete a log file.

    Args:
        file: Its name.
    """
    LOGS.remove(file)
    return f"{file} is gone, {len(LOGS)} are left"
