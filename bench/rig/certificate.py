"""A certificate for this machine's own address, good for an hour: made by openssl, which is everywhere."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """Where it and its key are."""

    file: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    """Make a certificate that vouches for itself."""
    made = Certificate(folder / "upstream.pem", folder / "upstream.key")
    subject = ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(made.key), "-out", str(made.file), *subject]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made
