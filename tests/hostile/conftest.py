"""One server for all rows of a worker, with a hostile upstream and tools that leave traces."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.house import house
from hostile.rows import REPLIES
from hostile.table import Scene
from hostile.upstream import hostile_upstream

TOOLS = '''"""Tools for a server that is attacked: one looks, one leaves a trace."""
from pathlib import Path
from treadle import tool

@tool(effect="read")
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} means much"

@tool(effect="write", approval="never")
def pay(amount: int) -> str:
    """Pay."""
    with (Path(__file__).parent / "ledger").open("a") as ledger:
        ledger.write(f"paid {amount}\\\\n")
    return "paid"
'''


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Start the server once."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    (folder / "tools.py").write_text(TOOLS.replace("\\\\n", "\\n"))
    with (
        hostile_upstream(REPLIES) as (url, received),
        house(folder, url, flags=("--tools", str(folder / "tools.py"))) as running,
    ):
        running.keep()
        yield Scene(running, received)
