"""Fingerprints of what must be equal for two runs to be comparable, each the start of a SHA-256."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from treadle.evals.scenario_file import Scenario

_EVALS = Path(__file__).parents[1]
_PACKAGE = _EVALS.parent
_CHARS = 16
_TOOLKIT = ("scenario_tools.py", "distractor_tools.py", "constant_tools.py", "sample_world.py")
_GRADERS = ("graders.py", "call_matching.py", "journal_invariants.py", "protocol_checks.py", "transcript.py")


def scenario_fingerprint(scenario: Scenario) -> str:
    """Return the fingerprint of what a scenario says, however its file is written."""
    return _short(msgspec.json.encode(scenario, order="deterministic"))


@cache
def code_fingerprints() -> dict[str, str]:
    """Return the fingerprints of what judges and plays: graders, toolkit, quirk table, and all of Treadle."""
    return {
        "graders": _files(_EVALS / name for name in _GRADERS),
        "toolkit": _files([_EVALS / name for name in _TOOLKIT]),
        "quirks": _files(sorted((_PACKAGE / "providers").glob("quirk_*.py"))),
        "source": _files(sorted(_PACKAGE.rglob("*.py"))),
        "treadle": _version(),
    }


COMPARED = ("graders", "toolkit")
"""The fingerprints that two runs must share, beside those of their scenarios."""


def _version() -> str:
    try:
        return version("treadle")
    except PackageNotFoundError:
        return "unknown"


def _files(paths: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        data = path.read_bytes()
        whole.update(f"{path.name} {len(data)}\n".encode() + data)
    return whole.hexdigest()[:_CHARS]


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_CHARS]
