"""Lets schemathesis loose on a server of its own: `python -m hostile.fuzz`, which is a part of `make fuzz`.

What it must not find: a 5xx, a status, a type or a form that the document does not tell, a method that is not refused.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hostile.house import House, house
from hostile.upstream import hostile_upstream

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
)
ENDLESS = "/treadle/v1/live"
"""A stream that ends with its reader."""


def unleash(running: House, *flags: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run schemathesis against a server."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{running.url}/openapi.json", "--no-color"]
    command += ["--checks", ",".join(CHECKS), "--exclude-path", ENDLESS, "--request-timeout", "20"]
    command += ["--generation-database", "none", "--generation-with-security-parameters", "false", *flags]
    return subprocess.run(
        command,
        cwd=running.folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )


def main() -> int:
    """Fuzz every operation for some minutes."""
    with tempfile.TemporaryDirectory() as folder, hostile_upstream({}) as (url, _), house(Path(folder), url) as running:
        done = unleash(
            running, "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "40", timeout_s=1_800
        )
        print(done.stdout)
        print(done.stderr, file=sys.stderr)
        running.keep()
        wrong = running.is_well()
    if wrong:
        print(wrong, file=sys.stderr)
    return 1 if wrong else done.returncode


if __name__ == "__main__":
    sys.exit(main())
