"""What a run of the tests left out and why, for the end of its output: each reason once, with how many tests and where.

A run that skips a hundred tests in silence looks like one that passed them all.
"""

from collections.abc import Iterable, Iterator

FILES_SHOWN_MAX = 4


def left_out(skipped: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines about skipped tests, each given as its id and its reason; none when nothing was skipped."""
    found: dict[str, list[str]] = {}
    for test, reason in skipped:
        found.setdefault(" ".join(reason.removeprefix("Skipped: ").split()), []).append(test.partition("::")[0])
    if found:
        yield f"left out: {_count(sum(map(len, found.values())))}, because"
    for reason, tests in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        files = list(dict.fromkeys(tests))
        more = f" and {len(files) - FILES_SHOWN_MAX} more files" if len(files) > FILES_SHOWN_MAX else ""
        yield f"  {reason}: {_count(len(tests))} of {', '.join(files[:FILES_SHOWN_MAX])}{more}"


def _count(tests: int) -> str:
    return f"{tests:,} test{'' if tests == 1 else 's'}"
