"""The command line: argument parsing, help, and what several commands share."""

import sys

# Before anything is imported that an older Python does not have.
if sys.version_info < (3, 11):  # noqa: UP036
    found = ".".join(str(part) for part in sys.version_info[:3])
    sys.stderr.write(
        f"treadle: this is Python {found}, and Treadle needs 3.11 or newer\n"
        "  hint: install it into an environment of a newer Python, such as python3.11 -m venv .venv\n"
    )
    raise SystemExit(2)
