"""How tests are spread over workers: a file stays whole, and so do folders that share what is dear.

The pages are looked at by two browsers in all, and the sources are read once for all rules about them.

A file's tests share what its fixtures start, so a file that is cut starts it twice. Files come in the order of
`testpaths` in pyproject.toml: what takes long goes first, so that no worker is left with it in the end.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from xdist.scheduler.loadscope import LoadScopeScheduling

UNITS = {
    "tests/browser/test_chat": "the chat page",
    "tests/browser/": "the other pages",
    "tests/rules/test_snippets": "snippets",
    "tests/rules/": "rules",
}
"""What the files of a unit begin with; the first that fits counts."""


LONG = (
    "tests/unit/cli/doctor/",
    "tests/unit/evals/",
    "tests/unit/wasm/engine/",
    "tests/unit/server/workers/",
    "tests/unit/protocols/text_calls/",
)
"""Where there are files that take long although most of those around them do not: they go before those."""
LAST = "tests/unit/"
"""The folder of which they are taken out: nothing comes behind it."""

T = TypeVar("T")


def long_first(items: Iterable[T], nodeid_of: Callable[[T], str]) -> list[T]:
    """Return tests in the order in which they are handed out: of those that come last the long ones first."""
    return sorted(items, key=lambda item: _turn(nodeid_of(item)))


def _turn(nodeid: str) -> int:
    return 0 if not nodeid.startswith(LAST) else 1 if nodeid.startswith(LONG) else 2


def unit_of(nodeid: str) -> str:
    """Return what a test may not be torn from: its file, or a unit of several."""
    file = nodeid.partition("::")[0]
    return next((unit for start, unit in UNITS.items() if file.startswith(start)), file)


class ByFile(LoadScopeScheduling):
    """Hands out whole units, first come, first served."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
