"""How tests are spread over workers: a file stays whole, and so do folders that share what is dear.

The pages are looked at by two browsers in all, and the sources are read once for all rules about them.

A file's tests share what its fixtures start, so a file that is cut starts it twice. Files come in the order of
`testpaths` in pyproject.toml: what takes long goes first, so that no worker is left with it in the end.
"""

from xdist.scheduler.loadscope import LoadScopeScheduling

UNITS = {
    "tests/browser/test_chat": "the chat page",
    "tests/browser/": "the other pages",
    "tests/rules/test_snippets": "snippets",
    "tests/rules/": "rules",
}
"""What the files of a unit begin with; the first that fits counts."""


def unit_of(nodeid: str) -> str:
    """Return what a test may not be torn from: its file, or a unit of several."""
    file = nodeid.partition("::")[0]
    return next((unit for start, unit in UNITS.items() if file.startswith(start)), file)


class ByFile(LoadScopeScheduling):
    """Hands out whole units, first come, first served."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
