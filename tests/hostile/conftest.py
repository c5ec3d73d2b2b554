"""Servers for all rows of a worker, with a hostile upstream and tools that leave traces."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostile.house import house, make_key
from hostile.rows import REPLIES
from hostile.table import Scene
from hostile.upstream import hostile_upstream

TOOLS = r'''"""Tools for a server that is attacked: one looks, one leaves a trace."""
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
        ledger.write(f"paid {amount}\n")
    return "paid"
'''


@contextmanager
def _scene(folder: Path, **more: str) -> Iterator[Scene]:
    (folder / "tools.py").write_text(TOOLS)
    with (
        hostile_upstream(REPLIES) as (url, received),
        house(folder, url, flags=("--tools", str(folder / "tools.py")), **more) as running,
    ):
        if more:
            running.key = make_key(running)
        running.keep()
        yield Scene(running, received)


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Start a server once, on which nobody needs a key."""
    with _scene(tmp_path_factory.mktemp("hostile")) as made:
        yield made


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Start a server once, on which every program needs a key."""
    with _scene(tmp_path_factory.mktemp("locked"), more='[keys]\nrequired = "always"') as made:
        yield made
