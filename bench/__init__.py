"""Measures what Treadle costs: beside a direct connection, beside its peers, with and without the journal."""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parents[1] / "tests")
if _TESTS not in sys.path:
    # The database server and the installed-once folders are the ones that the tests use.
    sys.path.append(_TESTS)
